"""A short soak: a federation whose server is killed decides as one that is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hardening.soak import ChangingGrid, Size, Soaked, slope, soak

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux shows it")


@pytest.mark.slow
def test_kills_change_no_decision(tmp_path):
    found = soak(Size(rounds=30, clients=12, ids=100, kill_every=10), tmp_path)
    assert dataclasses.replace(found, kib_a_round=0.0).passed, found  # 30 rounds are too few to see a slope
    assert (found.kills, found.ids, found.rounds_missing) == (2, 100, 0)


def test_a_soak_fails_if_anything_is_lost_or_differs():
    fine = Soaked(10, 20, 2, 0, 100, 0, True, 0.0, 0.3, 80.0, True, 1.0)
    assert fine.passed
    for change in (
        {"rounds_missing": 1},
        {"decisions_that_differ": 1},
        {"same_model": False},
        {"trail_intact": False},
        {"kib_a_round": 4.5},
    ):
        assert not dataclasses.replace(fine, **change).passed


def test_all_ids_appear_in_the_first_half_and_come_back_in_the_second():
    grid, seen = ChangingGrid(Size(rounds=20, clients=12, ids=80)), list[set[int]]()
    for number in range(1, 21):
        grid.begin(number)
        seen.append(set(grid.nodes))
    assert all(len(nodes) == 12 for nodes in seen)
    assert len(set().union(*seen[:10])) == 80
    assert seen[10:] == seen[:10]


def test_the_slope_is_that_of_the_rounds_that_are_asked_for():
    memory = {number: 1024 * (3 * number if number < 10 else 30) for number in range(20)}
    assert slope(memory, range(10)) == pytest.approx(3)
    assert slope(memory, range(10, 20)) == pytest.approx(0, abs=1e-9)
