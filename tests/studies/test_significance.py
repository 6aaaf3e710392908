"""Tests of a difference, against SciPy and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from flanders import InputError
from flanders.studies.significance import block_means, compare_means, welch


def drifting(rng, n, strength=0.9):
    """A series whose neighbours are alike."""
    x = np.zeros(n)
    for t in range(1, n):
        x[t] = strength * x[t - 1] + rng.normal()
    return x


def test_the_p_value_is_that_of_scipy(rng):
    for shift in (-0.5, 0.0, 2.0):
        a, b = rng.normal(shift, 1, size=49), rng.normal(0, 3, size=49)
        theirs = ttest_ind(a, b, equal_var=False, alternative="greater").pvalue
        assert welch(a, b) == pytest.approx(theirs, rel=1e-9)


def test_without_any_spread_the_means_decide():
    assert welch(np.ones(5), np.zeros(5)) == 0
    assert welch(np.zeros(5), np.ones(5)) == welch(np.ones(5), np.ones(5)) == 1


def test_one_block_as_long_as_the_series_always_has_its_mean(rng):
    values = rng.normal(size=11)
    np.testing.assert_allclose(block_means(values, 11, 50, rng), values.mean())


def test_blocks_cover_as_many_values_as_the_series_has(rng):
    np.testing.assert_allclose(block_means(np.ones(10), 4, 20, rng), 1.0)
    means = block_means(np.arange(10.0), 4, 20_000, rng)
    assert means.mean() == pytest.approx(4.5, abs=0.03)


def test_independent_values_get_the_same_verdict_from_both_tests(rng):
    a, b = rng.normal(0.35, 1, size=60), rng.normal(size=60)
    found = compare_means(a, b, block=1, rng=rng)
    assert found.bootstrap_p == pytest.approx(found.welch_p, rel=0.5, abs=0.01)
    assert found.low < found.difference < found.high


def test_where_neighbours_are_alike_only_the_bootstrap_keeps_its_promise(rng):
    """Without any difference, a test at 5% should reject in 5% of the cases."""
    rejected = np.zeros(2)
    for _ in range(300):
        found = compare_means(drifting(rng, 49), drifting(rng, 49), block=7, rng=rng, resamples=199)
        rejected += np.array([found.welch_p, found.bootstrap_p]) <= 0.05
    welch_rate, bootstrap_rate = rejected / 300
    assert welch_rate > 0.25
    assert bootstrap_rate < 0.75 * welch_rate


def test_a_clear_difference_gets_the_least_p_value_there_is(rng):
    found = compare_means(rng.normal(9, 1, size=40), rng.normal(size=40), block=6, rng=rng, resamples=999)
    assert found.bootstrap_p == pytest.approx(1 / 1000)
    assert found.welch_p < 1e-30


@pytest.mark.parametrize("pair", [(np.ones(3), np.ones(4)), (np.ones(1), np.ones(1)), (np.ones((2, 2)),) * 2])
def test_series_that_cannot_be_compared_are_an_error(pair, rng):
    with pytest.raises(InputError, match="two series of the same length"):
        compare_means(*pair, block=1, rng=rng)
