"""Two camps or one: the likelihood ratio finds clusters and leaves single ones alone."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.filters.camps.splitting import evidence_needed, split_in_two


def test_two_clusters_are_two_camps_whatever_their_sizes():
    rng = np.random.default_rng(0)
    for k in (5, 20, 45):
        values = rng.normal(size=50) * 0.05 + (np.arange(50) < k)
        cut = split_in_two(values, 0.02)
        assert cut.evidence > evidence_needed(50, 0.01)
        assert np.array_equal(cut.low, np.arange(50) >= k)


@pytest.mark.parametrize("n", [8, 20, 100])
def test_one_cluster_is_none(n):
    rng = np.random.default_rng(n)
    found = [split_in_two(rng.normal(size=n), 0.02).evidence for _ in range(200)]
    assert max(found) < evidence_needed(n, 0.01)


def test_small_differences_do_not_count():
    values = np.array([0.0] * 10 + [0.001] * 10)
    assert split_in_two(values, 0.0001).evidence > evidence_needed(20, 0.01)
    assert split_in_two(values, 0.02).evidence < evidence_needed(20, 0.01)


def test_too_few_values_are_not_split_in_two():
    assert split_in_two(np.array([0.0, 1.0, 2.0]), 0.02) is None
    assert split_in_two(np.array([0.0, 0.0, 1.0, 1.0]), 0.02, fewest=3) is None


def test_a_lower_rate_needs_more_evidence_and_a_natural_side_less():
    assert evidence_needed(20, 0.001) > evidence_needed(20, 0.01) > evidence_needed(20, 0.01, 0.1)
