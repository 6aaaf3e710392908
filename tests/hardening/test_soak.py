"""A short soak: a federation whose server is killed decides as one that is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hardening.soak import Size, Soaked, soak

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read as Linux shows it")


@pytest.mark.slow
def test_kills_change_no_decision(tmp_path):
    found = soak(Size(rounds=30, clients=12, ids=200, kill_every=10), tmp_path)
    assert found.passed, found
    assert (found.kills, found.ids, found.rounds_missing) == (2, 200, 0)


def test_a_soak_fails_if_anything_is_lost_or_differs():
    fine = Soaked(10, 20, 2, 0, 100, 0, True, 0.0, 80.0, True, 1.0)
    assert fine.passed
    for change in (
        {"rounds_missing": 1},
        {"decisions_that_differ": 1},
        {"same_model": False},
        {"trail_intact": False},
    ):
        assert not dataclasses.replace(fine, **change).passed
