from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from flanders.attacks import Mar, View, forecasting
from flanders.checks import InputError

RNG = np.random.default_rng(0)
X = np.array([[1.0, 0.0, 5.0], [0.0, 1.0, 5.0]])


def view_of(own: np.ndarray, clients: tuple[Any, ...], memory: Any = None, **extra: Any) -> View:
    options: dict[str, Any] = {"server_columns": np.array([1, 0, 1]), "last_layer": slice(0, 2)} | extra
    return View(own, np.full(3, 9.0), options.pop("num_clients", 8), clients, memory=memory, **options)


@pytest.mark.parametrize("omniscient", [True, False])
def test_the_attacked_columns_are_what_mar_forecasts_and_the_others_honest(omniscient: bool) -> None:
    attack, memory = Mar(omniscient=omniscient), None
    for factor in (1.0, 2.0):  # two rounds, each twice the one before: the next is four times the first
        memory = attack.remember(view_of(X, (0, 1), memory), X * factor)
    found = attack.craft(view_of(np.full((2, 3), 7.0), (1, 0), memory), RNG)
    np.testing.assert_allclose(found, [[0.0, 4.0, 7.0], [4.0, 0.0, 7.0]], atol=1e-12)


def test_with_one_round_of_history_the_last_model_is_sent_again() -> None:
    memory = Mar().remember(view_of(X, (0, 1)), X)
    found = Mar().craft(view_of(np.full((2, 3), 7.0), (0, 1), memory), RNG)
    assert np.array_equal(found, [[1.0, 0.0, 7.0], [0.0, 1.0, 7.0]])


def test_a_client_never_seen_before_stays_honest() -> None:
    assert np.array_equal(Mar().craft(view_of(X, (0, 1)), RNG), X)
    memory = Mar().remember(view_of(X, (0, 1)), X)
    found = Mar().craft(view_of(np.full((2, 3), 7.0), ("new", 1), memory), RNG)
    assert np.array_equal(found, [[7.0, 7.0, 7.0], [0.0, 1.0, 7.0]])


def test_nothing_is_forecast_from_models_that_are_not_finite() -> None:
    memory = Mar().remember(view_of(X, (0, 1)), np.where(X > 0.5, np.inf, X))
    own = np.full((2, 3), 7.0)
    np.testing.assert_array_equal(Mar().craft(view_of(own, (0, 1), memory), RNG), own)


def test_the_global_model_stands_in_for_an_absent_client(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[np.ndarray] = []

    def persistence(matrices: Sequence[np.ndarray]) -> np.ndarray:
        given.extend(matrices)
        return matrices[-1]

    monkeypatch.setattr(forecasting, "forecast", persistence)
    attack = Mar(omniscient=False)
    memory = attack.remember(view_of(X[:1], ("a",)), X[:1])
    memory = attack.remember(view_of(X[1:], ("b",), memory), X[1:])
    attack.craft(view_of(X, ("a", "b"), memory), RNG)
    assert np.array_equal(given[0], [[1.0, 0.0], [9.0, 9.0]])
    assert np.array_equal(given[1], [[9.0, 9.0], [0.0, 1.0]])


def test_only_an_omniscient_attacker_follows_the_benign_clients() -> None:
    benign = np.full((1, 3), 3.0)
    view = view_of(X, (0, 1), num_clients=3, benign=benign, benign_clients=(2,))
    assert Mar(omniscient=True).remember(view, X)[-1].clients == (0, 1, 2)
    assert Mar(omniscient=False).remember(view, X)[-1].clients == (0, 1)


def test_only_the_last_rounds_of_the_window_are_remembered() -> None:
    attack, memory = Mar(window=2), None
    for t in range(4):
        memory = attack.remember(view_of(X, (0, 1), memory), X * t)
    assert memory is not None
    assert [round_.models[0, 0] for round_ in memory] == [2.0, 3.0]


def test_what_was_remembered_does_not_change_with_the_callers_arrays() -> None:
    sent = X.copy()
    memory = Mar().remember(view_of(X, (0, 1)), sent)
    sent[...] = np.nan
    assert np.array_equal(memory[0].models, X)


@pytest.mark.parametrize(("omniscient", "missing"), [(True, "server_columns"), (False, "last_layer")])
def test_an_attacker_without_columns_is_told_what_to_do(omniscient: bool, missing: str) -> None:
    with pytest.raises(InputError, match=rf"`View\.{missing}` is None\. Pass"):
        Mar(omniscient=omniscient).craft(view_of(X, (0, 1), **{missing: None}), RNG)
