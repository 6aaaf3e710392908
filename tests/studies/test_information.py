"""Mutual information against its value for Gaussian pairs, and against scikit-learn's estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.feature_selection import mutual_info_regression

from flanders.studies import information
from flanders.studies.information import ESTIMATORS, gaussian_copula, histogram, kraskov


def gaussian_pairs(rng, rho, n):
    x, noise = rng.normal(size=(2, n))
    return x, rho * x + np.sqrt(1 - rho**2) * noise


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("rho", [0.0, 0.5, -0.9])
def test_gaussian_pairs_share_as_much_as_theory_says(name, rho, rng):
    found = float(ESTIMATORS[name](*gaussian_pairs(rng, rho, 20_000)))
    assert found == pytest.approx(-0.5 * np.log(1 - rho**2), abs=0.03)


@pytest.mark.parametrize("n", [49, 800])
@pytest.mark.parametrize("rho", [0.5, 0.99])
def test_neighbours_are_counted_as_in_scikit_learn(n, rho, rng):
    x, y = gaussian_pairs(rng, rho, n)
    theirs = mutual_info_regression(x[:, None], y, n_neighbors=3, random_state=0)[0]
    assert float(kraskov(x, y)) == pytest.approx(theirs, abs=1e-6)


def test_both_ways_to_count_neighbours_agree_on_ties_too(rng, monkeypatch):
    x, y = gaussian_pairs(rng, 0.7, 300)
    for a, b in ((x, y), (x.round(1), y.round(1))):
        few = float(kraskov(a, b))
        with monkeypatch.context() as patch:
            patch.setattr(information, "FEW", 10)
            assert float(kraskov(a, b)) == pytest.approx(few, abs=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("n", [30, 600])
def test_many_series_at_once_give_what_each_gives_alone(name, n, rng, monkeypatch):
    monkeypatch.setattr(information, "BLOCK", 3 * n**2)  # more than one block
    x = rng.normal(size=(2, 4, n))
    y = x + rng.normal(size=x.shape)
    together = ESTIMATORS[name](x, y)
    assert together.shape == (2, 4)
    for i in np.ndindex(2, 4):
        assert float(ESTIMATORS[name](x[i], y[i])) == pytest.approx(together[i])


def test_series_of_a_few_values_share_what_their_counts_say(rng):
    """A sign and its noisy copy: whether it flips decides, log 2 less the entropy of the flips."""
    x = np.sign(rng.normal(size=6000))
    y = np.where(rng.random(6000) < 0.1, -x, x)
    expected = np.log(2) + 0.1 * np.log(0.1) + 0.9 * np.log(0.9)
    assert float(kraskov(x, y)) == pytest.approx(expected, abs=0.03)
    assert float(kraskov(x[:400], y[:400])) == pytest.approx(expected, abs=0.15)
    assert abs(float(kraskov(x, rng.permutation(x)))) < 0.03


def test_ranks_do_not_see_monotone_changes_and_neighbours_not_those_of_scale(rng):
    x, y = gaussian_pairs(rng, 0.8, 400)
    for estimate in (gaussian_copula, histogram):
        assert estimate(np.exp(x), y**3) == pytest.approx(estimate(x, y))
    assert kraskov(1e6 * x + 5, -1e-6 * y) == pytest.approx(float(kraskov(x, y)), abs=1e-6)


def test_dependence_without_correlation_is_seen_by_all_but_the_gaussian_copula(rng):
    x = rng.normal(size=5000)
    y = x**2 + 0.1 * rng.normal(size=5000)
    assert abs(gaussian_copula(x, y)) < 0.05
    assert kraskov(x, y) > 1
    assert histogram(x, y) > 0.8


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_constant_series_tells_nothing_and_a_copy_a_finite_amount(name, rng):
    x = rng.normal(size=(2, 60))
    assert float(ESTIMATORS[name](x[0], np.full(60, 3.0))) == 0
    assert 0.5 < float(ESTIMATORS[name](x[1], x[1])) <= np.log(60) + 1


def test_the_bias_of_few_pairs_is_taken_off(rng):
    x, y = rng.normal(size=(2, 4000, 20))
    assert abs(gaussian_copula(x, y).mean()) < 0.004  # without the correction 1 / 2n = 0.025
    assert abs(histogram(x, y, bins=2).mean()) < 0.004
    assert abs(kraskov(x, y).mean()) < 0.02


def test_bins_hold_equally_many_and_can_be_counted_by_hand():
    x = np.array([1.0, 2.0, 3.0, 4.0] * 2)
    y = np.array([1.0, 1.5, 8.0, 9.0] * 2)
    # Two bins each: all pairs on the diagonal, four a cell; plug-in log 2, corrected by (1 + 1 - 1) / (2 * 8).
    assert float(histogram(x, y, bins=2)) == pytest.approx(np.log(2) + 1 / 16)
