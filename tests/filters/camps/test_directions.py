"""How far clients go along with the others, in a round and on average."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import LAYERS, honest, turned
from flanders import Camps, Defense, Guard
from flanders.filters.camps.directions import (
    Directions,
    along_main_direction,
    cosines_with_middle,
    weights_of_round,
)

NAMES = tuple(range(20))


def cosines_of(updates):
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    return unit @ unit.T


def test_the_middle_stays_with_the_larger_half():
    found = cosines_with_middle(cosines_of(turned(20, 9, 1)))
    assert (found[:9] < -0.3).all()
    assert (found[9:] > 0.3).all()


def test_the_middle_of_some_clients_is_where_these_are():
    cosines, some = cosines_of(turned(20, 14, 1)), np.arange(20) >= 14
    assert (cosines_with_middle(cosines)[some] < 0).all()
    assert (cosines_with_middle(cosines, some)[some] > 0).all()


@pytest.mark.parametrize("b", [5, 10, 15])
def test_the_main_direction_has_two_camps_on_its_two_sides(b):
    found = along_main_direction(cosines_of(turned(20, b, 1)))
    assert len(set(np.sign(found[:b]))) == len(set(np.sign(found[b:]))) == 1
    assert np.sign(found[0]) != np.sign(found[-1])


def test_rounds_in_which_clients_agree_more_count_more():
    everyone = np.ones(20, dtype=bool)
    agree, disagree = (
        cosines_of(honest(20, 1) + noise) for noise in (0.0, 9 * np.random.default_rng(0).normal(size=(20, 3000)))
    )
    assert weights_of_round([agree], everyone) > 10 * weights_of_round([disagree], everyone)
    now, later = np.full((20, 1), 0.8), np.full((20, 1), 0.2)
    known = Directions().with_round(NAMES, np.arange(20), now, np.array([0.9]))
    assert known.averages(NAMES, later, np.array([0.1])) == pytest.approx(0.74)
    assert known.averages((*NAMES[:-1], "new"), later, np.array([0.1]))[-1] == pytest.approx(0.2)


def test_clients_dropped_the_last_time_have_no_say_in_the_middle():
    now, weights, rows = np.zeros((20, 1)), np.ones(1), np.ones(20, dtype=bool)
    known = Directions().with_round(NAMES, np.arange(5, 20), now, weights)
    assert np.array_equal(known.middle_rows(NAMES, rows), np.arange(20) >= 5)
    back = known.with_round(NAMES, np.arange(20), now, weights)
    assert back.middle_rows(NAMES, rows).all()
    nearly_nobody = Directions().with_round(NAMES, np.arange(1), now, weights)
    assert nearly_nobody.middle_rows(NAMES, rows).all()


def test_only_the_latest_clients_are_remembered():
    known, now, weights = Directions(), np.zeros((4, 1)), np.ones(1)
    for number in range(50):
        known = known.with_round(tuple(range(4 * number, 4 * number + 4)), np.arange(2), now, weights)
    assert len(known.cosines.sums) == 100
    assert set(known.dropped) <= set(known.cosines.sums)


@pytest.mark.parametrize("filter_", [Guard(), Camps()])
def test_attackers_found_once_do_not_come_back_by_pulling_less(filter_):
    defense = Defense(filter_)
    pulled = np.isin(np.arange(40), range(12))
    found = []
    for number, strength in enumerate((1.0, 1.0, 0.25, 0.25, 0.25)):
        updates = honest(40, number, alpha=5.0)
        mean = updates.mean(axis=0)
        updates[pulled] -= 2 * strength * mean
        found.append(set(defense(updates, layers=LAYERS).dropped))
    assert all(dropped == set(range(12)) for dropped in found), found
    alone = honest(40, 4, alpha=5.0)
    alone[pulled] -= 0.5 * alone.mean(axis=0)
    assert set(Defense(filter_)(alone, layers=LAYERS).dropped) < set(range(12))


def test_a_memory_survives_being_saved(tmp_path):
    one, other = Defense(), Defense()
    for number in range(2):
        one(turned(30, 8, number), layers=LAYERS)
    one.save(tmp_path / "memory")
    other.load(tmp_path / "memory")
    for number in (2, 3):
        rounds = [defense(turned(30, 8, number), layers=LAYERS) for defense in (one, other)]
        assert rounds[0].dropped == rounds[1].dropped
        assert np.array_equal(rounds[0].model, rounds[1].model)
