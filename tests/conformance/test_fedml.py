"""Our rules against those of FedML Security 0.9.6, on the same inputs.

FedML needs many packages, so its rules were run once and their results are written down here. Where it differs from
the papers, a test says how, with a few lines that do what its code does.
"""

from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import Bulyan, Krum, Median, MultiKrum, NormClipping, TrimmedMean
from flanders.aggregators.foolsgold import foolsgold_weights
from flanders.linalg.products import cosines_of_gram, gram

KRUM = {0: 4, 1: 5, 2: 2}
MULTI_KRUM = {0: [2, 3, 4, 9, 10], 1: [2, 5, 6, 7, 9], 2: [2, 4, 5, 9, 10]}
"""The clients that `KrumDefense` keeps, with `krum_param_m` of 1 and of 5, by seed."""
FOOLSGOLD = {
    0: [0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0],
    1: [0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0],
    2: [0, 0, 0, 1, 1, 1, 0.1293, 1, 0, 0.1293, 1],
}
"""The weights of `FoolsGoldDefense.fools_gold_score`."""
BULYAN = {
    0: [0.258744, -0.08228, 0.384505, 0.568342, -0.066494, 0.045291, 0.316597, 0.539404],
    1: [0.119653, -0.15626, 0.244476, -0.285546, -0.045064, -0.388521, 0.101525, -0.47606],
    2: [0.394114, 0.375931, 0.1687, -0.831663, -0.008089, 0.918866, -0.206876, 0.413445],
}
"""The model of `BulyanDefense`."""


def rows_of(seed: int) -> np.ndarray:
    """Return eleven rows, of which the first two are outliers."""
    rows = np.random.default_rng(seed).normal(size=(11, 8))
    rows[:2] += 3
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_krum_and_multi_krum_keep_the_same_clients(seed):
    rows = rows_of(seed)
    assert np.array_equal(Krum(num_malicious=2)(rows), rows[KRUM[seed]])
    expected = rows[MULTI_KRUM[seed]].mean(axis=0)
    np.testing.assert_allclose(MultiKrum(num_malicious=2, keep=5)(rows), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_foolsgold_weighs_the_same(seed):
    found = foolsgold_weights(cosines_of_gram(gram(rows_of(seed))))
    np.testing.assert_allclose(found, FOOLSGOLD[seed], atol=1e-4)


def fedml_bulyan(rows: np.ndarray, f: int) -> np.ndarray:
    """Pick one by one with two neighbours more than Krum's, and average one value fewer than the paper."""
    left, chosen = list(range(len(rows))), []
    while len(chosen) < len(rows) - 2 * f:
        apart = [sorted(np.linalg.norm(rows[i] - rows[j]) for j in left if j != i) for i in left]
        best = left[int(np.argmin([sum(each[: len(left) - f]) for each in apart]))]
        chosen.append(best)
        left.remove(best)
    kept = rows[chosen]
    away = kept - np.median(kept, axis=0)
    order = np.argsort(np.abs(away), axis=0)[: len(kept) - 2 * f - 1]
    return np.median(kept, axis=0) + np.take_along_axis(away, order, axis=0).mean(axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_their_bulyan_differs_in_neighbours_distances_and_one_value(seed):
    rows = rows_of(seed)
    np.testing.assert_allclose(fedml_bulyan(rows, 2), BULYAN[seed], atol=1e-6)
    assert not np.allclose(Bulyan(num_malicious=2)(rows), BULYAN[seed], atol=1e-2)


def test_their_median_of_an_even_number_is_the_lower_one():
    # Measured with the first ten rows: exactly the fifth smallest value, and up to 0.47 from ours.
    rows = rows_of(0)[:10]
    lower = np.sort(rows, axis=0)[4]
    assert np.abs(Median()(rows) - lower).max() == pytest.approx(0.46712244370408584)


def test_norm_bounding_shortens_to_the_same_length():
    # Measured: 2e-16 apart with a radius of 1.5 around a global model of 0.1.
    rows, start = rows_of(0), np.full(8, 0.1)
    clipped = NormClipping(radius=1.5)(rows, global_model=start)
    apart = rows - start
    expected = start + apart / np.maximum(1, np.linalg.norm(apart, axis=1, keepdims=True) / 1.5)
    np.testing.assert_allclose(clipped, expected, atol=1e-12)


def test_their_trimmed_mean_trims_clients_by_their_number_of_examples_and_not_values():
    # Measured: with equal numbers it leaves out the first and the last two clients, so outliers may stay.
    rows = rows_of(0)[[2, 3, 0, 1, *range(4, 11)]]
    theirs = rows[2:-2].mean(axis=0)
    assert np.abs(theirs - TrimmedMean(trim=2)(rows)).max() > 0.5
