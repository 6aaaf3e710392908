from __future__ import annotations

import itertools

import numpy as np
import pytest

from flanders.attacks import ByzMean, Lie, Rearranged, View
from flanders.linalg.signs import sign_shares

RNG = np.random.default_rng(0)


def test_no_other_order_of_the_values_points_more_against_the_honest_mean():
    g, own, benign = RNG.normal(size=6), RNG.normal(size=(1, 6)), RNG.normal(size=(3, 6))
    row = Rearranged()(View(own=own, global_model=g, num_clients=4, benign=benign))[0]
    mean = (benign - g).mean(axis=0)
    least = min(np.array(values) @ mean for values in itertools.permutations(own[0] - g))
    assert (row - g) @ mean == pytest.approx(least)


def test_length_and_signs_stay():
    g, own = RNG.normal(size=50), RNG.normal(size=(4, 50))
    rows = Rearranged()(View(own=own, global_model=g, num_clients=9, benign=RNG.normal(size=(5, 50))))
    np.testing.assert_allclose(np.linalg.norm(rows - g, axis=1), np.linalg.norm(own - g, axis=1))
    np.testing.assert_allclose(sign_shares(rows, g), sign_shares(own, g))


@pytest.mark.parametrize("b", [1, 2, 5])
def test_the_mean_of_the_round_becomes_the_model_of_lie(b):
    benign = RNG.normal(size=(7, 8))
    view = View(own=RNG.normal(size=(b, 8)), global_model=np.zeros(8), num_clients=7 + b, benign=benign)
    rows, lie = ByzMean()(view), Lie()(view)[0]
    np.testing.assert_allclose(np.concatenate([rows, benign]).mean(axis=0), lie, atol=1e-12)
    np.testing.assert_allclose(rows[: b // 2], np.tile(lie, (b // 2, 1)))
