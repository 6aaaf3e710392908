"""The five lines, and the front door."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from flanders import (
    Aggregator,
    Bucketing,
    Defense,
    DistanceToGlobal,
    DnC,
    FedAvg,
    Fingerprint,
    Flanders,
    FLDetector,
    Guard,
    InputError,
    KeepAll,
    Krum,
    Median,
    Persistence,
    Round,
    Scores,
    Sketch,
    defend,
    save_state,
)
from flanders.aggregators import FoolsGold
from flanders.published.flanders import FlandersReference
from flanders.state import state_to_bytes


def test_readme_lines_give_the_same_decisions_on_numpy_and_torch(rng):
    honest = rng.normal(size=(10, 1000)).astype(np.float32)
    ours, theirs = Defense(Flanders(keep=7), seed=0), Defense(Flanders(keep=7), seed=0)
    for t in range(5):
        models = honest * np.float32(0.9) ** t + 0.01 * rng.normal(size=honest.shape).astype(np.float32)
        models[:3] += (t >= 3) * 0.5
        one, two = ours(models), theirs(torch.from_numpy(models))
        assert one.kept.tolist() == two.kept.tolist()
    assert one.dropped == (0, 1, 2)
    assert isinstance(two.model, torch.Tensor)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_dropped_first_and_reported(poison, caplog):
    updates = np.array([[1.0, 1.0], [1.0, poison], [3.0, 3.0]])
    with caplog.at_level(logging.WARNING, "flanders"):
        outcome = Defense(KeepAll(), Median())(updates, ["a", "evil", "b"])
    np.testing.assert_array_equal(outcome.model, [2.0, 2.0])
    assert outcome.unusable == ("evil",)
    assert outcome.dropped == ("evil",)
    assert outcome.scores.clients == ("a", "b")
    assert "evil" in caplog.text


def test_a_finite_row_whose_square_overflows_is_unusable_too():
    outcome = Defense(Flanders(keep=1))(np.array([[1.0, 1.0], [1e200, 0.0]]))
    assert outcome.unusable == (1,)


def test_the_largest_float32_numbers_do_not_break_the_filter(rng):
    defense = Defense(Flanders(keep=5), Median(), seed=0)
    for t in range(4):
        models = rng.normal(size=(6, 20)).astype(np.float32)
        models[0] = 3e38 if t else 0
        outcome = defense(models)
        assert np.all(np.isfinite(outcome.model))
    assert outcome.dropped == (0,)


def test_when_nobody_sends_a_finite_model_the_global_model_stays_and_it_says_so():
    g = np.array([4.0, 5.0])
    defense = Defense(Flanders(keep=0.5))
    before = defense.state
    outcome = defense(np.full((3, 2), np.nan), global_model=g)
    np.testing.assert_array_equal(outcome.model, g)
    assert outcome.kept.size == 0
    assert outcome.unusable == (0, 1, 2)
    assert "global model stays" in outcome.note
    assert outcome.state is before


def test_when_the_filter_keeps_nobody_the_global_model_stays_and_it_says_so():
    class Nobody(KeepAll):
        def select(self, scores):
            return np.empty(0, dtype=np.int64)

    outcome = defend(Nobody(), None, Round(np.ones((3, 2)), global_model=np.zeros(2)), lambda rows: 1 / 0)
    np.testing.assert_array_equal(outcome.model, [0, 0])
    assert "kept nobody" in outcome.note
    assert outcome.dropped == (0, 1, 2)


def test_kept_clients_of_weight_zero_count_alike_and_masks_choose_rows():
    round_ = Round(np.arange(6.0).reshape(3, 2), weights=[0, 0, 5])
    assert round_.take([0, 1]).weights.tolist() == [1, 1]
    assert round_.take(np.array([False, True, True])).clients == (1, 2)


def test_the_first_round_goes_to_the_fallback_the_user_names(rng):
    models = rng.normal(size=(7, 3))
    models[6] += 1e6
    defense = Defense(Flanders(keep=6), FedAvg(), fallback=Krum(num_malicious=1))
    outcome = defense(models)
    assert any(np.array_equal(outcome.model, m) for m in models[:6])
    assert outcome.scores is None
    second = defense(models)
    np.testing.assert_allclose(second.model, models[second.kept].mean(axis=0))
    assert second.scores is not None


def test_without_a_global_model_the_round_starts_where_the_last_one_ended():
    defense = Defense(DistanceToGlobal(keep=1.0))
    defense(np.array([[2.0, 0.0]]))
    outcome = defense(np.array([[2.0, 3.0]]))
    assert outcome.scores.values.tolist() == [9.0]


def test_weights_reach_the_aggregator():
    outcome = Defense(KeepAll())(np.array([[0.0], [4.0]]), weights=[3, 1])
    assert outcome.model.tolist() == [1.0]


def test_the_defense_refuses_what_is_not_a_filter_or_an_aggregator():
    with pytest.raises(InputError, match="`filter` parameter of Defense must be a Filter"):
        Defense(Median())
    with pytest.raises(InputError, match="`aggregator` parameter of Defense must be an Aggregator"):
        Defense(KeepAll(), "median")


def test_what_the_caller_does_with_a_model_changes_nothing_later(rng):
    rounds = [rng.normal(size=(6, 4)) for _ in range(4)]
    quiet, meddled = Defense(Persistence(keep=4), seed=0), Defense(Persistence(keep=4), seed=0)
    for updates in rounds:
        left, right = quiet(updates), meddled(updates)
        assert left.dropped == right.dropped
        np.testing.assert_array_equal(left.model, right.model)
        right.model[:] = 1e6


def test_a_model_that_stays_is_a_copy():
    start = np.ones(3)
    outcome = Defense()(np.full((2, 3), np.nan), global_model=start)
    assert outcome.model is not start
    np.testing.assert_array_equal(outcome.model, start)


def test_a_defense_goes_on_from_its_file_as_if_nothing_had_happened(rng, tmp_path):
    rounds = [rng.normal(size=(9, 30)) + 3 for _ in range(7)]
    first = Defense(Flanders(keep=7, look=Sketch(8)), DnC(sample=5, num_malicious=1), seed=0)
    for updates in rounds[:4]:
        first(updates)
    first.save(tmp_path / "defense.npz")
    second = Defense(Flanders(keep=7, look=Sketch(8)), DnC(sample=5, num_malicious=1), seed=1)
    second.load(tmp_path / "defense.npz")
    for updates in rounds[4:]:
        left, right = first(updates), second(updates)
        assert left.dropped == right.dropped
        np.testing.assert_array_equal(left.model, right.model)


def test_a_file_of_another_defense_is_refused(rng, tmp_path):
    path = tmp_path / "state.npz"
    Defense(Persistence(keep=2)).save(path)
    with pytest.raises(InputError, match=r"made by Persistence\(keep=2\), but the filter is Fingerprint"):
        Defense(Fingerprint()).load(path)
    save_state(path, Defense(Fingerprint()).state)
    with pytest.raises(InputError, match="does not hold the memory of a Defense"):
        Defense(Fingerprint()).load(path)


def test_what_the_filter_draws_does_not_change_what_the_aggregator_draws(rng):
    models, aggregator = rng.normal(size=(9, 4)), Bucketing(2) | Median()
    drawing, plain, other = (
        Defense(FLDetector(), aggregator, seed=3),
        Defense(KeepAll(), aggregator, seed=3),
        Defense(KeepAll(), aggregator, seed=4),
    )
    np.testing.assert_array_equal(drawing(models).model, plain(models).model)
    assert not np.array_equal(plain(models).model, other(models).model)


class Sloppy(KeepAll):
    """A filter of somebody's own, with a mistake."""

    def __init__(self, scores, rows=()):
        self.made, self.rows = scores, rows

    def score(self, state, round_):
        return self.made

    def select(self, scores):
        return self.rows


@pytest.mark.parametrize(
    ("filter_", "says"),
    [
        (Sloppy(np.zeros(3)), "Sloppy.score returned ndarray, expected Scores or None"),
        (Sloppy(Scores((0, 1, 2), np.zeros(2))), r"of shape \(2,\).*must return shape \(3,\)"),
        (Sloppy(Scores((0, 1, 5), np.zeros(3))), "in the same order"),
        (
            Sloppy(Scores((0, 1, 2), np.zeros(3)), [0, 3]),
            r"Sloppy.select returned \[0, 3\], expected rows",
        ),
        (Sloppy(Scores((0, 1, 2), np.zeros(3)), [1, 1]), "each once and in rising order"),
        (Sloppy(Scores((0, 1, 2), np.zeros(3)), [True, False, True]), "expected rows"),
    ],
)
def test_a_filter_that_breaks_the_contract_is_named(filter_, says, rng):
    with pytest.raises(InputError, match=says):
        Defense(filter_)(rng.normal(size=(3, 2)))


def test_a_list_of_rows_will_do(rng):
    outcome = Defense(Sloppy(Scores((0, 1, 2), np.zeros(3)), [0, 2]))(rng.normal(size=(3, 2)))
    assert outcome.dropped == (1,)


def test_an_outcome_prints_as_five_lines() -> None:
    outcome = Defense(DistanceToGlobal(keep=3), Median())(
        np.array([[1.0, 2.0], [50.0, 60.0], [1.0, 4.0], [2.0, 2.0]])
    )
    assert str(outcome).splitlines() == [
        "kept      3 of 4 clients",
        "not kept  1",
        "why       score 6100",
        "model     2 parameters, float64",
        "note      -",
    ]
    names = [f"a{'b' * 50}\n{n}" for n in range(40)]
    assert len(str(Defense(DistanceToGlobal(keep=1))(np.eye(40), names)).splitlines()) == 5
    assert repr(outcome) == "Outcome(kept 3 of 4 clients; print it for more)"


def test_another_number_of_parameters_is_told_as_such() -> None:
    defense = Defense(DistanceToGlobal(keep=3))
    defense(np.ones((4, 7)))
    with pytest.raises(
        InputError, match=r"models of this round have 5 parameters, but those of earlier rounds had 7"
    ):
        defense(np.ones((4, 5)))


UNSCORED_FIRST = [
    Flanders(keep=0.8),
    FlandersReference(keep=0.8),
    FLDetector(keep=0.8),
    FLDetector(),
    Persistence(keep=0.8),
]


@pytest.mark.parametrize("filter_", UNSCORED_FIRST, ids=repr)
@pytest.mark.parametrize("size", [1e30, 1e4, 200.0])
def test_without_scores_one_update_that_drowns_the_others_is_left_out(filter_, size, rng):
    """One of ten clients sends it in the first round, in which these filters have nothing to judge by."""
    updates = rng.normal(size=(10, 50)).astype(np.float32)
    updates[3] *= np.float32(size)
    defense = Defense(filter_, seed=0)
    outcome = defense(updates)
    assert outcome.scores is None
    assert outcome.dropped == (3,)
    assert "times as long as the median update" in outcome.reasons[3]
    assert np.abs(outcome.model).max() < 3
    for _ in range(3):  # the memory is not spoilt either
        outcome = defense(outcome.model + rng.normal(size=(10, 50)).astype(np.float32))
        assert len(outcome.kept) >= 5
        assert np.isfinite(outcome.model).all()


@pytest.mark.parametrize("filter_", UNSCORED_FIRST, ids=repr)
def test_without_scores_an_honest_round_keeps_everyone(filter_, rng):
    """Some honest clients move twenty times as far as others. The model is the plain average, bit for bit."""
    updates = rng.normal(size=(10, 50)) * np.geomspace(0.2, 4, 10)[:, None]
    outcome = Defense(filter_, seed=0)(updates)
    assert outcome.dropped == ()
    assert outcome.note == "no scores yet: all usable models were aggregated"
    np.testing.assert_array_equal(outcome.model, Defense(KeepAll())(updates).model)


class Overwhelmed(KeepAll):
    """Cannot compute with numbers above a hundred."""

    def score(self, state, round_):
        if np.abs(round_.updates).max() > 100:
            raise np.linalg.LinAlgError("Singular matrix")
        return super().score(state, round_)

    def amend(self, state, round_, kept, model, scores=None):
        if np.abs(round_.updates).max() > 100:
            raise OverflowError("too large")


def test_a_filter_that_cannot_compute_says_so_and_the_model_stays(rng, caplog):
    defense = Defense(Overwhelmed())
    first = defense(rng.normal(size=(5, 3)))
    outcome = defense(first.model + 1000 * rng.normal(size=(5, 3)))
    assert outcome.note == "Overwhelmed cannot judge this round (Singular matrix): the global model stays"
    np.testing.assert_array_equal(outcome.model, first.model)
    assert len(outcome.dropped) == 5
    assert "Overwhelmed cannot remember this round (too large)" in caplog.text
    assert len(defense(rng.normal(size=(5, 3))).kept) == 5


@dataclass(frozen=True)
class Odd(Aggregator):
    """Returns something that is no model."""

    made: object

    def aggregate(self, round_, rng):
        return self.made


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
@pytest.mark.parametrize(
    ("made", "found"),
    [
        (np.zeros(5), r"\(5,\)"),
        (np.zeros((2, 4)), r"\(2, 4\)"),
        (None, "NoneType"),
        ([0.0] * 4, "list"),
        (np.zeros(()), r"\(\)"),
    ],
)
def test_an_aggregator_that_returns_no_model_is_named(made, found, library, rng):
    defense = Defense(KeepAll(), Odd(library(made) if isinstance(made, np.ndarray) else made))
    with pytest.raises(
        InputError, match=rf"Odd must return one model, an array of shape \(4,\). Got {found} instead"
    ):
        defense(library(rng.normal(size=(6, 4))))


@dataclass(frozen=True)
class Singular(Aggregator):
    """Cannot compute."""

    def aggregate(self, round_, rng):
        raise np.linalg.LinAlgError("Singular matrix")


@pytest.mark.parametrize("aggregator", [Odd(np.full(4, np.nan)), Odd(np.array([0, 0, 0, -np.inf])), Singular()])
def test_a_model_that_cannot_be_computed_is_not_used(aggregator, rng):
    defense = Defense(KeepAll(), aggregator)
    before = rng.normal(size=4)
    outcome = defense(rng.normal(size=(6, 4)), global_model=before)
    np.testing.assert_array_equal(outcome.model, before)
    assert "the kept models cannot be aggregated" in outcome.note
    assert not outcome.kept.size


@pytest.mark.parametrize(
    "change",
    [
        {"generator": {}},
        {"generator": {"bit_generator": "MT19937"}},
        {"generator": 3},
        {"memory": 5},
        {"memory": None},
        {"model": "x"},
        {"model": np.zeros((2, 2))},
        {"rounds": "many"},
        {"rounds": True},
        {"aggregation": [1]},
        {"filter": 3},
    ],
    ids=repr,
)
def test_a_file_that_cannot_be_used_changes_nothing(change, rng, tmp_path):
    defense = Defense(seed=1)
    defense(rng.normal(size=(6, 4)))
    save_state(tmp_path / "state.npz", dataclasses.replace(defense.memory, **change))
    other = Defense(seed=2)
    other(rng.normal(size=(6, 4)))
    before = state_to_bytes(other.memory)
    with pytest.raises(InputError, match=r"state\.npz"):
        other.load(tmp_path / "state.npz")
    assert state_to_bytes(other.memory) == before


def test_a_memory_that_does_not_fit_the_round_is_named(rng, tmp_path):
    defense = Defense(seed=1)
    for _ in range(3):
        defense(rng.normal(size=(6, 4)))
    memory = defense.memory
    odd = dataclasses.replace(memory.memory.signatures, marks=np.zeros((1, 1, 1)))
    spoilt = dataclasses.replace(memory, memory=dataclasses.replace(memory.memory, signatures=odd))
    save_state(tmp_path / "state.npz", spoilt)
    defense.load(tmp_path / "state.npz")
    with pytest.raises(InputError, match=r"The memory in .*state\.npz does not fit this round"):
        defense(rng.normal(size=(6, 4)))


def test_names_of_clients_do_not_control_the_terminal_or_fill_the_log(caplog, rng):
    names = [f"\x1b[2J{i}" + "x" * 1000 for i in range(60)]
    updates = rng.normal(size=(60, 4))
    updates[10:] = np.nan
    Defense(KeepAll())(updates, names)
    assert "and 30 more" in caplog.text
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 3000


def test_a_round_that_fails_leaves_nothing_behind() -> None:
    class Forgetful(KeepAll):
        def amend(self, state, round_, kept, model, scores=None):
            raise InputError("nothing can be remembered")

    defense = Defense(Forgetful(), FoolsGold())
    before = defense.memory.aggregation
    with pytest.raises(InputError, match="nothing can be remembered"):
        defense(np.eye(4))
    assert defense.memory.aggregation == before
    defense.filter = KeepAll()
    assert defense(np.eye(4, 7)).kept.size == 4


def test_guard_warns_once_if_the_layers_are_not_known(caplog) -> None:
    updates = np.random.default_rng(0).normal(size=(6, 8))
    for filter_, layers in ((Guard(), {"all": 8}), (KeepAll(), None)):
        Defense(filter_)(updates, layers=layers)
        assert "layers" not in caplog.text
    defense = Defense(Guard())
    for _ in range(2):
        defense(updates)
    assert caplog.text.count("pass layers={'all': 8}") == 1
