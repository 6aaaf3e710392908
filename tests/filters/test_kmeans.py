"""AUROR on cases that can be worked out."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, KMeans


def test_auror_drops_the_minority_that_moves_together(rng):
    models = rng.normal(scale=0.1, size=(10, 40))
    models[[0, 3, 8]] += 2
    outcome = Defense(KMeans())(models)
    assert outcome.dropped == (0, 3, 8)
    calm = Defense(KMeans())(rng.normal(size=(10, 1000)))
    assert calm.dropped == ()


@pytest.mark.parametrize("size", [1e3, 1e20, 1e37])
def test_auror_drops_one_huge_client_in_float32_too(rng, size):
    models = rng.normal(size=(10, 50)).astype(np.float32)
    models[7] = size
    assert Defense(KMeans())(models).dropped == (7,)
