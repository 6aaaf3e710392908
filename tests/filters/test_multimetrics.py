from __future__ import annotations

import numpy as np
import pytest

from flanders import Round
from flanders.filters import MultiMetrics

RNG = np.random.default_rng(0)
G = RNG.normal(size=30)


def by_hand(rows):
    features = np.array(
        [
            [
                np.abs(row - G).sum(),
                np.linalg.norm(row - G),
                row @ G / (np.linalg.norm(row) * np.linalg.norm(G)),
            ]
            for row in rows
        ]
    )
    sums = np.abs(features[:, None] - features[None]).sum(axis=1)
    inverse = np.linalg.inv(np.cov(sums.T))
    return np.array([np.sqrt(x @ inverse @ x) for x in sums])


@pytest.mark.parametrize("seed", range(3))
def test_the_score_is_the_formula_of_the_paper(seed):
    rows = G + np.random.default_rng(seed).normal(size=(12, 30))
    scores = MultiMetrics().score(None, Round(rows, global_model=G))
    np.testing.assert_allclose(scores.values, by_hand(rows), rtol=1e-8)


def test_clients_that_are_unlike_the_others_in_any_distance_are_dropped():
    rows = G + 0.1 * RNG.normal(size=(20, 30))
    rows[0] += 5
    rows[1] = -rows[1]
    kept = MultiMetrics(keep=18).select(MultiMetrics(keep=18).score(None, Round(rows, global_model=G)))
    assert kept.tolist() == list(range(2, 20))


def test_equal_clients_have_equal_scores():
    assert np.ptp(MultiMetrics().score(None, Round(np.ones((5, 3)))).values) == 0
