from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import Bulyan, FedAvg, MultiKrum
from flanders.published.aggregators import BulyanReference, MultiKrumReference


def models(m, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(m, d))


def test_multi_krum_is_the_textbook_one_where_that_holds():
    updates = models(15)
    np.testing.assert_array_equal(
        MultiKrumReference(num_malicious=3, keep=4)(updates), MultiKrum(num_malicious=3, keep=4)(updates)
    )


@pytest.mark.parametrize("num_malicious", [8, 12, 15, 99])
def test_multi_krum_goes_on_where_the_textbook_one_cannot_hold(num_malicious):
    updates = models(15)
    updates[1] = updates[0] + 1e-6  # with one neighbour to look at, the closest pair wins
    chosen = MultiKrumReference(num_malicious=num_malicious, keep=2)(updates)
    if num_malicious >= 12:
        np.testing.assert_allclose(chosen, updates[:2].mean(axis=0), atol=1e-9)
    assert np.isfinite(chosen).all()


def test_multi_krum_averages_everyone_when_there_are_fewer_than_it_keeps():
    updates = models(5)
    np.testing.assert_allclose(MultiKrumReference(num_malicious=0, keep=10)(updates), updates.mean(axis=0))


def test_bulyan_is_the_textbook_one_up_to_its_limit_and_the_average_beyond():
    updates, weights = models(15), np.arange(1.0, 16.0)
    np.testing.assert_array_equal(BulyanReference(3)(updates, weights), Bulyan(3)(updates, weights))
    np.testing.assert_array_equal(BulyanReference(4)(updates, weights), FedAvg()(updates, weights))
