"""What the filter learns from a round, compared with the plain formulas."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Round
from flanders.filters.fingerprint.learning import directions_of, new_marks, products_between
from flanders.linalg.products import gram

KEPT, DROPPED = np.array([0, 2, 3, 5, 6, 7, 8, 11]), np.array([1, 4, 10])


def updates_of(d=300, own=1.0, dtype=np.float64):
    rng = np.random.default_rng(0)
    return (rng.normal(size=d) + own * rng.normal(size=(12, d))).astype(dtype)


def opposite_pairs():
    updates = updates_of()
    updates[KEPT[4:]] = -updates[KEPT[:4]]
    return updates


@pytest.mark.parametrize("dropped", [None, DROPPED, DROPPED[:0]])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_the_products_of_remembered_vectors_follow_from_those_of_the_round(dropped, dtype, tolerance):
    round_ = Round(updates_of(dtype=dtype))
    products = gram(round_.updates, round_.global_model)
    marks, common = new_marks(round_, KEPT, products)
    vectors = [marks, common[None, :]]
    if dropped is not None and dropped.size:
        vectors.append(directions_of(round_, dropped, products))
    expected = gram(np.concatenate(vectors).astype(np.float64))
    found = products_between(round_, products, KEPT, dropped)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "updates",
    [
        updates_of(own=1e-4),  # nearly the same direction: nothing is left of the marks
        np.repeat(updates_of()[:1], 12, axis=0),
        opposite_pairs(),  # no common direction
        updates_of(d=5),  # fewer parameters than clients
    ],
)
def test_products_that_would_be_rounding_errors_are_left_to_be_computed(updates):
    round_ = Round(updates, global_model=np.zeros(updates.shape[1]))
    assert products_between(round_, gram(updates), KEPT, DROPPED) is None
