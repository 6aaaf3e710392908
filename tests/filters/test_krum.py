"""Multi-Krum's selection as a filter."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, FedAvg, MultiKrum, Round
from flanders.filters import KrumFilter


def test_it_keeps_whom_multi_krum_averages(rng):
    models = rng.normal(size=(12, 30))
    models[:3] += 4.0
    outcome = Defense(KrumFilter(num_malicious=3), FedAvg())(models)
    assert outcome.dropped == (0, 1, 2)
    np.testing.assert_allclose(outcome.model, MultiKrum(num_malicious=3)(models))


def test_colluders_in_the_majority_win_it_over(rng):
    models = rng.normal(size=(10, 30))
    models[:6] = 4.0
    filter_ = KrumFilter(num_malicious=6)
    kept = filter_.select(filter_.score(None, Round(models)))
    assert kept.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("keep", "count"), [(None, 7), (5, 5), (0.9, 9)])
def test_it_keeps_all_but_b_unless_told_how_many(rng, keep, count):
    filter_ = KrumFilter(num_malicious=3, keep=keep)
    assert filter_.select(filter_.score(None, Round(rng.normal(size=(10, 4))))).size == count


def test_somebody_is_kept_even_if_all_are_said_to_be_malicious(rng):
    filter_ = KrumFilter(num_malicious=1.0)
    assert filter_.select(filter_.score(None, Round(rng.normal(size=(5, 4))))).size == 1
