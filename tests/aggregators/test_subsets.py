from __future__ import annotations

import itertools

import numpy as np
import pytest

from flanders.aggregators import Caf, MinimumDiameter, MinimumSpread
from flanders.checks import InputError
from flanders.linalg import subsets


def rows_of(seed, m=10, d=6):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(m, d))
    rows[:3] += seed
    return rows


def best(rows, size, measure):
    return rows[list(min(itertools.combinations(range(len(rows)), size), key=lambda s: measure(rows[list(s)])))]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("b", [0, 1, 3, 4])
def test_the_subset_of_least_diameter_is_the_best_of_all(seed, b):
    rows = rows_of(seed)
    expected = best(rows, 10 - b, lambda part: np.linalg.norm(part[:, None] - part, axis=2).max())
    np.testing.assert_allclose(MinimumDiameter(b)(rows), expected.mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("b", [0, 1, 3, 4])
def test_the_subset_of_least_spread_is_the_best_of_all(seed, b):
    rows = rows_of(seed)
    expected = best(rows, 10 - b, lambda part: np.linalg.norm(np.cov(part.T, bias=True), 2))
    np.testing.assert_allclose(MinimumSpread(b)(rows), expected.mean(axis=0), atol=1e-12)


def test_a_hundred_clients_of_which_twenty_are_far_away_are_searched_at_once():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 5))
    rows[:20] += 50
    np.testing.assert_allclose(MinimumDiameter(20)(rows), rows[20:].mean(axis=0), atol=1e-12)


def test_a_search_that_would_not_end_is_an_error_that_says_what_to_do(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(60, 40))
    with pytest.raises(InputError, match=r"ways to choose 35 of 60 updates.* Lower `num_malicious`"):
        MinimumSpread(25)(rows)
    monkeypatch.setattr(subsets, "MOST_BRANCHES", 5)
    with pytest.raises(InputError, match=r"more than 5 branches\. Lower `num_malicious`"):
        MinimumDiameter(25)(rows)


def dense_caf(rows, b):
    """The algorithm on whole vectors, with NumPy's eigenvectors of the d x d covariance."""
    weights, best_value, mean = np.ones(len(rows)), np.inf, rows.mean(axis=0)
    while weights.sum() > len(rows) - 2 * b:
        middle = weights @ rows / weights.sum()
        away = rows - middle
        values, vectors = np.linalg.eigh((weights[:, None] * away).T @ away / weights.sum())
        if values[-1] < best_value:
            best_value, mean = values[-1], middle
        along = (away @ vectors[:, -1]) ** 2
        weights = weights * np.maximum(1 - along / along[weights > 0].max(), 0)
    return mean


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("b", [0, 1, 3, 4])
def test_caf_on_inner_products_is_caf_on_vectors(seed, b):
    rows = rows_of(seed)
    np.testing.assert_allclose(Caf(b)(rows), dense_caf(rows, b), atol=1e-9)
