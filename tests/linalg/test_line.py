from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.linalg.line import Line, largest_root
from flanders.linalg.products import squared_distances


@pytest.mark.parametrize("t", [0.0, 0.7, 30.0])
def test_a_ray_knows_the_distances_of_a_round_with_copies_of_its_point(t: float) -> None:
    rng = np.random.default_rng(0)
    rows, start, direction = rng.normal(size=(5, 40)), rng.normal(size=40), rng.normal(size=40)
    point = start + t * direction
    expected = squared_distances(np.vstack([rows, point, point]))
    np.testing.assert_allclose(
        Line.measure(rows, start, direction).with_copies(t, 2), expected, rtol=1e-9, atol=1e-9
    )


def test_a_ray_keeps_small_distances_between_large_single_precision_models() -> None:
    rng = np.random.default_rng(0)
    start = np.full(500, 100.0, dtype=np.float32)
    rows = start + rng.normal(size=(4, 500)).astype(np.float32) * np.float32(1e-3)
    exact = ((rows.astype(np.float64) - start) ** 2).sum(axis=1)
    np.testing.assert_allclose(Line.measure(rows, start, np.ones_like(start)).to_rows(0.0), exact, rtol=1e-12)


@given(st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.floats(-1e3, 0))
def test_the_largest_root_is_where_the_parabola_leaves_the_negative(a: float, b: float, c: float) -> None:
    t = largest_root(a, b, c)
    size = a * t * t + 2 * abs(b) * t + abs(c) + 1e-9
    assert t >= 0
    assert abs(a * t * t + 2 * b * t + c) <= 1e-9 * size
    assert a * (t + 1) ** 2 + 2 * b * (t + 1) + c > 0


def test_without_a_root_the_lowest_point_of_the_parabola_is_returned() -> None:
    assert largest_root(1.0, -2.0, 5.0) == 2.0
    assert largest_root(1.0, 2.0, 5.0) == 0.0


def test_a_ray_that_goes_nowhere_has_no_length() -> None:
    assert largest_root(0.0, 0.0, -1.0) == 0.0
    assert largest_root(1.0, 0.0, 1e-20) == 0.0  # what rounding may leave where there is no room
