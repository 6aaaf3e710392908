from __future__ import annotations

import math

import numpy as np
import pytest

from flanders.filters.fingerprint.crowd import least_of_the_upper_kind, measure_company


def test_common_is_the_mean_cosine_with_the_others_of_the_group():
    x = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [1.0, 1.0], [0.0, -1.0]])
    half, group = 0.5**0.5, np.array([True, True, True, True, False])
    means = np.array([1 + half, 1 + half, half, 3 * half, -0.75 * (1 + half)]) / 3
    found = measure_company(x @ x.T, group)
    np.testing.assert_allclose(found.common, means)
    assert not found.crowd.any()
    assert np.isnan(measure_company(x @ x.T, np.array([True, True, True, False, False])).common).all()


def two_kinds(size, share, pull, seed=0):
    """Directions of which the first `share` have a pull in common, and their inner products."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 300))
    x[: int(share * size)] += pull * rng.normal(size=300)
    return x @ x.T


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_crowd_with_a_pull_in_common_stands_apart(share):
    group = np.ones(50, dtype=bool)
    group[0] = False  # it is no member, and has as much in common with the crowd
    found = measure_company(two_kinds(50, share, 1.0), group)
    np.testing.assert_array_equal(found.crowd, np.arange(50) < int(share * 50))
    assert found.level == pytest.approx(0.5 * (found.crowd.sum() - 2) / 48, abs=0.03)
    few = measure_company(two_kinds(10, share, 1.0), np.ones(10, dtype=bool))
    assert 0 < found.doubt < 0.02
    assert few.crowd.any() == (share == 0.5)  # two are no kind of their own
    assert math.isnan(few.doubt) or few.doubt > found.doubt


def test_clients_of_one_kind_are_no_crowd():
    alarms = [
        measure_company(two_kinds(50, 1.0, pull, seed), np.ones(50, dtype=bool)).crowd.any()
        for pull in (0.0, 0.5)
        for seed in range(50)
    ]
    assert np.mean(alarms) <= 0.02


def test_the_cut_is_where_the_variance_between_the_parts_is_largest():
    rng = np.random.default_rng(0)
    low, high = rng.normal(0, 1, 30), rng.normal(8, 1, 70)
    values = rng.permutation(np.concatenate([low, high]))
    assert least_of_the_upper_kind(values) == high.min()
    cuts = np.sort(values)[4:-3]  # each part has four members at least
    parts = [(values[values < cut], values[values >= cut]) for cut in cuts]
    between = [len(a) * len(b) * (b.mean() - a.mean()) ** 2 for a, b in parts]
    assert cuts[np.argmax(between)] == high.min()
    assert least_of_the_upper_kind(values[:7]) == math.inf
