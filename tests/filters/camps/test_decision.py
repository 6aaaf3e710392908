"""The decision: camps are dropped one after the other, each for a reason."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import honest, mask
from flanders.filters.camps.decision import (
    TwoCamps,
    drop_camps,
    drop_opposing,
    drop_wrong_camp,
    far_apart,
    judge_alike,
    scores_of,
    start_decision,
    wrong_by_nature,
)
from flanders.filters.camps.judging import Past
from flanders.filters.camps.opposing import Opposing
from flanders.filters.camps.traits import CHANGED, LOW, UNKNOWN, Trait
from flanders.round import Round

WORDS = ("too low", "too high")


def decision(m=20, evaluate=None, **past):
    return start_decision(Round(honest(m, 1), evaluate=evaluate), 0.01, Past(**past))


def two_camps(values, low, wrong, limit=np.inf, evidence=50.0):
    trait = Trait("test", np.asarray(values, dtype=float), 0.1, wrong, WORDS, limit=limit)
    rows = mask(len(values), low)
    return TwoCamps(trait, rows, ~rows, evidence, needed=20.0)


def test_nobody_is_dropped_before_anything_is_measured():
    scores = scores_of(decision(), "evidence")
    assert not scores.suspects.any()
    assert not scores.values.any()
    assert scores.evidence == "evidence"
    assert scores.note == ""


def test_a_dropped_client_keeps_its_first_reason():
    found = decision()
    found.drop(mask(20, [0, 1]), 3.0, "first")
    found.drop(mask(20, [1, 2]), 5.0, "second")
    assert found.reasons[:4] == ["first", "first", "second", ""]
    assert scores_of(found, None).values[:4].tolist() == [3.0, 3.0, 5.0, 0.0]


@pytest.mark.parametrize(
    ("size", "words"),
    [(1, ""), (2, "; the same holds for 1 other client"), (3, "; the same holds for 2 other clients")],
)
def test_a_reason_counts_the_other_clients_of_the_camp(size, words):
    found = decision()
    camps = two_camps([0.0] * size + [9.0] * (20 - size), range(size), LOW, limit=1.0)
    assert drop_wrong_camp(found, camps)
    assert found.reasons[0] == f"too low{words} (evidence 50 nats, needed 20)"


def test_too_little_evidence_drops_nobody():
    found = decision()
    assert not drop_wrong_camp(found, two_camps([0.0] * 5 + [9.0] * 15, range(5), LOW, limit=1.0, evidence=19.0))
    assert found.kept.all()


def test_the_lower_camp_is_wrong_only_below_the_limit():
    camps = two_camps([0.0] * 5 + [9.0] * 15, range(5), LOW, limit=1.0)
    assert wrong_by_nature(camps, Past()) is camps.low
    assert wrong_by_nature(two_camps([2.0] * 5 + [9.0] * 15, range(5), LOW, limit=1.0), Past()) is None


def test_the_camp_that_changed_more_is_wrong():
    camps = two_camps([-0.1] * 5 + [0.8] * 15, range(5), CHANGED, limit=0.3)
    assert wrong_by_nature(camps, Past()) is camps.high
    assert wrong_by_nature(two_camps([-0.1] * 5 + [0.2] * 15, range(5), CHANGED, limit=0.3), Past()) is None


def test_clients_that_were_dropped_do_not_make_a_majority_wrong():
    camps = two_camps([-0.1] * 5 + [0.8] * 15, range(5), CHANGED, limit=0.3)
    assert wrong_by_nature(camps, Past(dropped=camps.low)) is None
    assert wrong_by_nature(camps, Past(dropped=camps.high)) is camps.high


def test_clients_that_oppose_the_others_are_dropped_unless_the_losses_rise():
    found = decision()
    rows = np.arange(20) < 2
    opposing = Opposing(rows, np.where(rows, -0.3, 0.0), np.where(rows, -0.15, 0.0), evidence=9.0)
    drop_opposing(found, opposing)
    assert np.array_equal(~found.kept, rows)
    assert found.reasons[0] == "against the others in the first layers (mean cosine -0.30, limit -0.15)"
    assert found.strengths[0] == pytest.approx(2.0)
    for losses, dropped in (([1.0, 0.0], 0), ([0.0, 1.0], 2)):
        # The losses without the opposing clients are asked for first, then those of the whole round.
        answers = iter(losses)
        judged = decision(evaluate=lambda model, answers=answers: np.full(9, next(answers)) + np.arange(9) / 99)
        drop_opposing(judged, opposing)
        assert (~judged.kept).sum() == dropped


@pytest.mark.parametrize(("far", "dropped"), [(4.0, 0), (-1.5, 5)])
def test_a_camp_is_kept_if_the_losses_rise_without_it(far, dropped):
    # The five have the higher losses. But at 4, all together are nearer to the targets than the fifteen alone.
    targets = np.random.default_rng(0).normal(size=(50, 8)) / 4
    updates = np.repeat([[far], [-1.0]], [5, 15], axis=0) * np.ones(8)
    round_ = Round(updates, evaluate=lambda model: ((model - targets) ** 2).sum(axis=1))
    found = start_decision(round_, 0.01, Past())
    drop_wrong_camp(found, two_camps([0.0] * 5 + [9.0] * 15, range(5), LOW, limit=1.0))
    assert (~found.kept).sum() == dropped


def test_if_the_losses_are_alike_the_past_speaks_only_against_the_higher_ones():
    new, known = mask(10, range(7)), mask(10, range(7, 10))
    past = Past(changes=(np.where(new, np.nan, 0.0),))
    assert judge_alike(new, known, None, past)[0] is new
    assert judge_alike(known, new, None, past)[0] is None
    assert judge_alike(known, new, None, Past())[0] is None  # the majority is not asked
    assert judge_alike(known, new, None, Past(trusted=known))[0] is new


def test_if_the_losses_are_alike_a_majority_is_dropped_only_for_higher_ones():
    many, few = mask(10, range(7)), mask(10, range(7, 10))
    assert judge_alike(many, few, many, Past())[0] is many
    assert judge_alike(few, many, many, Past())[0] is None
    assert judge_alike(many, few, few, Past())[0] is few


def test_camps_that_point_against_each_other_lie_on_both_sides():
    assert far_apart(two_camps([-0.9] * 5 + [0.9] * 15, range(5), UNKNOWN, limit=-0.3))
    assert not far_apart(two_camps([0.1] * 5 + [0.9] * 15, range(5), UNKNOWN, limit=-0.3))
    assert far_apart(two_camps([0.1] * 5 + [0.9] * 15, range(5), UNKNOWN))


def test_camps_are_dropped_one_after_the_other():
    found, values = decision(40), np.array([-9.0] * 3 + [-5.0] * 3 + [0.0] * 34)
    drop_camps(found, lambda rows: [Trait("test", values, 0.1, UNKNOWN, WORDS)])
    assert np.array_equal(np.flatnonzero(~found.kept), np.arange(6))
    assert not found.doubt


def test_extreme_camps_cannot_hide_the_last_one():
    found, values = decision(100), np.repeat([-1e9, -1e7, -1e5, -1e3, -10.0, 0.0], [2, 2, 2, 2, 12, 80])
    drop_camps(found, lambda rows: [Trait("test", values, 0.1, UNKNOWN, WORDS)])
    assert np.array_equal(np.flatnonzero(~found.kept), np.arange(20))


def test_two_halves_are_a_doubt_that_is_noted_once(caplog):
    found, values = decision(40), np.array([-9.0] * 20 + [9.0] * 20)
    drop_camps(found, lambda rows: [Trait("test", values, 0.1, UNKNOWN, WORDS)] * 2)
    assert found.doubt
    assert found.kept.all()
    assert found.notes == ["two camps of about the same size (by test), and nothing tells which one is wrong"]
    assert scores_of(found, None).note == found.notes[0]
    assert len(caplog.records) == 1


CONNECTED = {"0.weight": 4, "0.bias": 2, "2.weight": 2, "2.bias": 1}
CONVOLUTION = {"0.weight": 3, "0.bias": 1, "2.weight": 4, "2.bias": 1}


@pytest.mark.parametrize(
    ("layers", "server", "evidence", "dropped"),
    [
        (CONNECTED, False, 1.0, 2),
        (CONNECTED, False, -1.0, 0),
        (CONNECTED, True, -1.0, 2),
        (CONVOLUTION, False, 1.0, 0),
        (CONVOLUTION, True, 1.0, 0),
        (CONVOLUTION, False, 4.0, 2),
    ],
)
def test_a_model_with_convolutions_needs_clear_evidence_against_opposing_clients(layers, server, evidence, dropped):
    d, rows = sum(layers.values()), np.arange(20) < 2
    round_ = Round(np.ones((20, d)), global_model=np.zeros(d), layers=layers)
    found = start_decision(round_, 0.01, Past())
    opposing = Opposing(rows, np.where(rows, -0.3, 0.0), np.where(rows, -0.15, 0.0), evidence)
    drop_opposing(found, opposing, by_server=server)
    assert (~found.kept).sum() == dropped
