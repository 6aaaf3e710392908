"""An `evaluate` that fails: it may not end the training, and a client may not profit from it."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from filters.camps.federation import LAYERS, D, towards_the_common, turned
from flanders import Defense, Guard
from flanders.filters import Zeno
from flanders.filters.server_losses import BrokenEvaluate, ServerLosses
from flanders.round import Round


def fails(model):
    raise RuntimeError("no such device")


def rounds(evaluate, filter_=None):
    """Three rounds of 20 clients, four of which are turned round."""
    defense = Defense(Guard() if filter_ is None else filter_, evaluate=evaluate, seed=0)
    return [defense(turned(20, 4, seed), layers=LAYERS, global_model=np.zeros(D)) for seed in range(3)]


def of_growing_size():
    calls = []
    return lambda model: calls.append(1) or np.arange(2.0 + len(calls) % 5)


@pytest.mark.parametrize(
    ("evaluate", "why"),
    [
        (fails, "RuntimeError: no such device"),
        (lambda model: 1 / 0, "ZeroDivisionError"),
        (lambda model: "x", "could not convert"),
        (lambda model: 1 + 2j, "TypeError"),
        (lambda model: {"loss": 1.0}, "TypeError"),
        (lambda model: None, "no finite loss"),
        (lambda model: np.array([]), "no finite loss"),
        (lambda model: np.full(50, np.nan), "no finite loss"),
        (lambda model: np.full(50, -np.inf), "no finite loss"),
        (of_growing_size(), "losses, and "),
    ],
)
def test_the_round_is_judged_without_an_evaluate_that_does_not_work(evaluate, why, caplog):
    with caplog.at_level(logging.WARNING):
        outcomes = rounds(evaluate)
    assert [outcome.dropped for outcome in outcomes] == [outcome.dropped for outcome in rounds(None)]
    assert all(why in outcome.note and "examples were not used" in outcome.note for outcome in outcomes)
    assert "Check the function `evaluate`." in caplog.text


def test_a_model_on_which_evaluate_fails_is_worse_than_all_others():
    def fragile(model):
        if model @ np.sign(turned(20, 0, 0).mean(axis=0)) < 0:
            raise OverflowError("a client's doing")
        return towards_the_common(model)

    assert all(outcome.dropped == (0, 1, 2, 3) for outcome in rounds(fragile))


def test_losses_near_the_largest_float_say_nothing_against_honest_clients():
    for loss in (1e308, -1e308):
        assert all(
            outcome.dropped == (0, 1, 2, 3) for outcome in rounds(lambda model, loss=loss: np.full(50, loss))
        )


def test_a_filter_that_needs_losses_keeps_the_global_model_if_there_are_none():
    for outcome in rounds(fails, Zeno(keep=0.8)):
        assert outcome.stayed
        assert "`evaluate` failed on the global model: RuntimeError: no such device" in outcome.note


def test_a_client_with_endlessly_low_losses_is_not_the_best_one_for_zeno():
    updates = np.vstack([np.full((9, 4), 0.1), np.full((1, 4), 5.0)])
    round_ = Round(updates, evaluate=lambda model: -np.inf if model[0] > 1 else 1.0 - model[0])
    assert int(np.argmax(Zeno().score(None, round_).values)) == 9


def test_the_users_function_cannot_change_the_global_model():
    round_ = Round(np.ones((3, 4)), evaluate=lambda model: model.fill(np.nan))
    with pytest.raises(BrokenEvaluate):
        ServerLosses(round_).of(np.ones(4))
    assert not round_.global_model.any()
