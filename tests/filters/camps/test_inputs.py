"""Clients that learn from inputs from which the others learn little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from filters.camps.federation import mask
from flanders import Camps, Defense, Guard
from flanders.filters.camps import inputs
from flanders.filters.camps.decision import TwoCamps, wrong_by_nature
from flanders.filters.camps.inputs import input_shares, input_traits
from flanders.filters.camps.judging import Past
from flanders.round import Round

INPUTS, OUTPUTS = 60, 30
TRIGGER = np.arange(55, 58)
LAYERS = {"1.weight": INPUTS * OUTPUTS, "1.bias": OUTPUTS, "2.weight": 10 * OUTPUTS, "2.bias": 10}
D = sum(LAYERS.values())


def steps(m, marked=(), seed=0, strength=2.0):
    """Honest steps. The last ten inputs are quiet; the `marked` clients also change the weights of the trigger."""
    fixed, rng = np.random.default_rng(99), np.random.default_rng(seed)
    loud = np.where(np.arange(INPUTS) < 50, 1.0, 0.7)
    common, trigger = fixed.normal(size=D), fixed.normal(size=(OUTPUTS, TRIGGER.size))
    found = common + rng.normal(size=(m, D))
    weights = found[:, : INPUTS * OUTPUTS].reshape(m, OUTPUTS, INPUTS)
    weights *= loud
    weights[np.ix_(marked, np.arange(OUTPUTS), TRIGGER)] += strength * trigger
    return found


@pytest.mark.parametrize("filter_", [Guard(), Camps()])
@pytest.mark.parametrize("b", [6, 12, 20])
def test_clients_that_learn_a_trigger_are_dropped_in_the_first_round(filter_, b):
    outcome = Defense(filter_)(steps(60, range(b)), global_model=np.zeros(D), layers=LAYERS)
    assert outcome.dropped == tuple(range(b))
    assert "it learns more than the others from input 5" in outcome.reasons[0]
    assert f"the same holds for {b - 1} other clients" in outcome.reasons[0]


def test_a_trigger_is_found_if_the_weights_of_an_input_are_neighbours():
    updates = steps(60, range(6))
    weights = updates[:, : INPUTS * OUTPUTS].reshape(60, OUTPUTS, INPUTS)
    updates[:, : INPUTS * OUTPUTS] = weights.transpose(0, 2, 1).reshape(60, -1)
    layers = {name.replace("weight", "kernel"): size for name, size in LAYERS.items()}
    outcome = Defense(Guard())(updates, global_model=np.zeros(D), layers=layers)
    assert outcome.dropped == tuple(range(6))
    assert "from input 5" in outcome.reasons[0]


def test_a_trigger_in_two_pieces_is_found_piece_by_piece():
    updates = steps(60)
    weights = updates[:, : INPUTS * OUTPUTS].reshape(60, OUTPUTS, INPUTS)
    weights[:8, :, 52] += 3.0
    weights[8:16, :, 56] += 3.0
    outcome = Defense(Guard())(updates, global_model=np.zeros(D), layers=LAYERS)
    assert outcome.dropped == tuple(range(16))


@pytest.mark.parametrize("seed", range(5))
def test_honest_clients_are_kept(seed):
    assert Defense(Guard())(steps(60, seed=seed), global_model=np.zeros(D), layers=LAYERS).dropped == ()


def test_a_camp_of_more_than_a_third_is_left_alone():
    updates = steps(60, range(24))
    assert Defense(Guard())(updates, global_model=np.zeros(D), layers=LAYERS).dropped == ()


def quiet(updates, rows):
    """Make these clients learn little from the first ten inputs."""
    weights = updates[:, : INPUTS * OUTPUTS].reshape(len(updates), OUTPUTS, INPUTS)
    weights[np.ix_(rows, np.arange(OUTPUTS), np.arange(10))] *= 0.6
    return updates


def test_a_majority_that_learns_less_than_usual_does_not_make_the_others_stand_out():
    updates = quiet(steps(60), range(48))
    found, rows = input_shares(Round(updates, layers=LAYERS)), np.ones(60, dtype=bool)
    usual = input_shares(Round(steps(60, seed=1), layers=LAYERS)).usual(np.arange(60))
    (trait,) = input_traits(found, usual, rows)
    camps = TwoCamps(trait, mask(60, range(48)), mask(60, range(48, 60)), 100.0, 50.0)
    assert wrong_by_nature(camps, Past()) is None  # with what is known of earlier rounds
    (trait,) = input_traits(found, None, rows)
    assert wrong_by_nature(replace(camps, trait=trait), Past()) is camps.high  # in a first round


def test_one_client_with_unusual_data_is_kept():
    assert Defense(Guard())(steps(60, [0]), global_model=np.zeros(D), layers=LAYERS).dropped == ()


def test_without_the_names_of_tensors_the_test_says_nothing():
    assert Defense(Guard())(steps(60, range(12)), global_model=np.zeros(D)).dropped == ()


def test_an_input_that_most_clients_do_not_use_says_nothing():
    updates = steps(60)
    weights = updates[:, : INPUTS * OUTPUTS].reshape(60, OUTPUTS, INPUTS)
    weights[:, :, TRIGGER] = 0  # a rare word, say, that only the first twelve clients have
    weights[:12, :, TRIGGER] = 2.0
    assert Defense(Guard())(updates, global_model=np.zeros(D), layers=LAYERS).dropped == ()


@pytest.mark.parametrize(
    "layers",
    [
        {"fc.weight": 2, "fc.bias": 2},  # one input
        {"conv.weight": 30, "fc.weight": 32, "fc.bias": 4},  # the first layer has no bias, so it is not known
    ],
)
def test_a_layer_with_one_input_or_behind_another_tensor_is_not_tested(layers):
    assert input_shares(Round(np.ones((5, sum(layers.values()))), layers=layers)) is None


def test_too_many_shares_are_not_computed(monkeypatch):
    monkeypatch.setattr(inputs, "MOST_SHARES", 10 * INPUTS)
    assert input_shares(Round(steps(10), layers=LAYERS)) is not None
    assert input_shares(Round(steps(11), layers=LAYERS)) is None


def test_clients_that_change_nothing_have_equal_shares():
    found = input_shares(Round(np.zeros((6, D)), layers=LAYERS))
    assert np.isfinite(found.logs).all()
    assert np.ptp(found.logs) == 0


def test_too_few_clients_have_no_camps():
    found = input_shares(Round(steps(6, [0, 1]), layers=LAYERS))
    assert input_traits(found, None, np.array([True] * 3 + [False] * 3)) == []
