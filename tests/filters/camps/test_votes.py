"""Clients vote for each other, and the server may vote for them."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import honest, world
from flanders.filters.camps.votes import Pairs, trust_by_votes


def test_who_turns_its_update_round_is_voted_down():
    updates = honest(20, 1)
    updates[:4] *= -1
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    found = trust_by_votes(unit @ unit.T)
    assert (found[:4] < -0.5).all()
    assert (found[4:] > 0.5).all()


def test_the_servers_step_says_which_side_is_right_against_a_majority():
    updates = honest(20, 1)
    updates[:14] *= -1
    unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    step = world()[0] / np.linalg.norm(world()[0])
    found = trust_by_votes(unit @ unit.T, unit @ step)
    assert (found[:14] < -0.5).all()
    assert (found[14:] > 0.5).all()


def test_pairs_are_averaged_by_how_much_their_rounds_agree():
    agree, noise = np.full((3, 3), 0.5), np.full((3, 3), 0.001)
    for cosines in (agree, noise):
        np.fill_diagonal(cosines, 1.0)
    pairs, names = Pairs(), ("a", "b", "c")
    for cosines in (agree, noise, noise):
        assert pairs.of(names) is None  # nobody votes before the third round
        pairs = pairs.with_round(names, cosines)
    assert pairs.of(("b", "a", "c"))[0, 1] == pytest.approx(0.5, abs=0.001)
    assert pairs.with_round(("d",), np.ones((1, 1))).of(("a", "b")) is None


def test_nobody_votes_any_more_once_there_were_too_many_clients():
    pairs, ones = Pairs(), np.ones((30, 30))
    for number in range(6):
        names = tuple(range(30)) if number != 3 else tuple(range(20, 50))
        pairs = pairs.with_round(names, ones)
    assert pairs.of(tuple(range(30))) is None
    assert len(pairs.clients) == 41  # and no more than that are remembered
