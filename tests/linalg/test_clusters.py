"""Clusters of numbers on a line, against all ways to cut them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flanders.linalg.clusters import line_clusters, num_clusters


def test_line_clusters_are_the_best_of_all(rng):
    values = rng.normal(size=8)
    for k, (cost, labels) in enumerate(line_clusters(values, 3), start=1):
        best = min(
            sum(((values[np.array(p) == j] - values[np.array(p) == j].mean()) ** 2).sum() for j in set(p))
            for p in itertools.product(range(k), repeat=8)
        )
        assert cost == pytest.approx(best)
        spread = sum(((values[labels == j] - values[labels == j].mean()) ** 2).sum() for j in range(k))
        assert spread == pytest.approx(best)
        means = [values[labels == j].mean() for j in range(k)]
        assert means == sorted(means)


def test_the_gap_statistic_counts_well_separated_groups(rng):
    assert num_clusters(np.concatenate([rng.normal(0, 0.01, 30), rng.normal(1, 0.01, 10)]), rng) == 2
    assert num_clusters(rng.uniform(size=60), rng) == 1
    assert num_clusters(np.ones(5), rng) == 1
