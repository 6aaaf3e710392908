from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import CenteredClipping, FLTrust, GeometricMedian
from flanders.checks import InputError


def sum_of_distances(point: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ np.linalg.norm(rows - point, axis=1))


@given(st.integers(0, 2**32), st.integers(3, 9))
def test_no_point_nearby_has_a_smaller_sum_of_distances_than_the_geometric_median(seed, m):
    rng = np.random.default_rng(seed)
    rows, weights = rng.normal(size=(m, 3)), rng.integers(1, 4, size=m).astype(float)
    found = GeometricMedian(weighted=True, iterations=10_000)(rows, weights)  # slow if one has half of the weight
    best = sum_of_distances(found, rows, weights)
    for step in rng.normal(size=(20, 3)) * 0.05:
        assert best <= sum_of_distances(found + step, rows, weights) + 1e-6


def test_the_geometric_median_of_a_triangle_sees_every_side_at_120_degrees() -> None:
    corners = np.array([[0.0, 0.0], [4.0, 0.0], [1.0, 3.0]])
    rays = corners - GeometricMedian()(corners)
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    np.testing.assert_allclose(rays @ rays.T, 1.5 * np.eye(3) - 0.5, atol=1e-6)


def test_the_geometric_median_of_four_corners_is_where_the_diagonals_cross() -> None:
    square = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    np.testing.assert_allclose(GeometricMedian()(square, global_model=np.array([9.0, -9.0])), [1.0, 1.0], atol=1e-6)


def test_more_than_half_at_one_point_is_the_geometric_median_wherever_the_others_are() -> None:
    rows = np.array([[1.0, 1.0]] * 4 + [[1e30, 0.0], [0.0, -1e25], [3.0, 3.0]])
    for start in ([0.0, 0.0], [1.0, 1.0], [1e6, 1e6]):
        np.testing.assert_allclose(GeometricMedian()(rows, global_model=np.array(start)), [1.0, 1.0], atol=1e-4)


def test_one_weiszfeld_step_by_hand() -> None:
    # From 0 the distances are 1, 2, 4, the pulls 1, 1/2, 1/4 of 7/4 in all: (1 + 1 - 1) / (7/4)
    rows = np.array([[1.0], [2.0], [-4.0]])
    assert GeometricMedian(iterations=1)(rows)[0] == pytest.approx(4 / 7)
    # With weights 1, 1, 8 the pulls are 1, 1/2, 2 of 7/2 in all: (1 + 1 - 8) / (7/2)
    assert GeometricMedian(iterations=1, weighted=True)(rows, [1, 1, 8])[0] == pytest.approx(-12 / 7)


def test_centered_clipping_by_hand() -> None:
    rows, g = np.array([[1.0, 1.0], [4.0, 5.0]]), np.array([1.0, 1.0])
    # Displacements (0, 0) and (3, 4) of length 5, clipped to 2: (1.2, 1.6), half of it.
    np.testing.assert_allclose(CenteredClipping(radius=2.0, iterations=1)(rows, global_model=g), [1.6, 1.8])
    # From (1.6, 1.8): (-0.6, -0.8) of length 1 stays, (2.4, 3.2) of length 4 becomes (1.2, 1.6); half the sum.
    np.testing.assert_allclose(CenteredClipping(radius=2.0, iterations=2)(rows, global_model=g), [1.9, 2.2])
    # By weight 3 : 1, one step: a quarter of (1.2, 1.6).
    weighted = CenteredClipping(radius=2.0, iterations=1, weighted=True)(rows, [3, 1], global_model=g)
    np.testing.assert_allclose(weighted, [1.3, 1.4])


def test_centered_clipping_takes_the_median_distance_if_it_is_given_no_radius() -> None:
    rows = np.array([[1.0], [3.0], [1e9]])
    assert CenteredClipping(iterations=1)(rows)[0] == pytest.approx((1 + 3 + 3) / 3)
    assert CenteredClipping(radius=0.0)(rows)[0] == 0.0


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0, 10))
def test_centered_clipping_never_goes_farther_than_the_radius_a_step(seed, iterations, radius):
    rows = np.random.default_rng(seed).normal(size=(7, 5)) * 1e4
    assert np.linalg.norm(CenteredClipping(radius, iterations)(rows)) <= iterations * radius * (1 + 1e-9)


def test_fltrust_by_hand() -> None:
    g, root = np.array([10.0, 10.0]), np.array([2.0, 0.0])
    rows = g + np.array([[5.0, 0.0], [3.0, 4.0], [0.0, 7.0], [-9.0, 1.0], [0.0, 0.0]])
    # Cosines 1, 0.6, 0, negative, none. Rescaled to length 2: (2, 0) and (1.2, 1.6).
    moved = (np.array([2.0, 0.0]) + 0.6 * np.array([1.2, 1.6])) / 1.6
    np.testing.assert_allclose(FLTrust()(rows, global_model=g, root=root), g + moved)


def test_fltrust_holds_against_any_number_of_opposed_clients() -> None:
    root = np.array([1.0, 1.0])
    rows = np.concatenate([np.full((99, 2), -1e6), [[3.0, 3.0]]])
    np.testing.assert_allclose(FLTrust()(rows, root=root), root)


@pytest.mark.parametrize("root", [np.array([1.0, 0.0]), np.zeros(2)])
def test_fltrust_stays_if_it_trusts_nobody(root) -> None:
    g = np.array([5.0, 6.0])
    model = FLTrust()(g + np.array([[-1.0, 3.0], [-2.0, 0.0]]), global_model=g, root=root)
    assert np.array_equal(model, g)
    assert not np.shares_memory(model, g)


@given(st.integers(0, 2**32), st.integers(0, 30))
def test_fltrust_never_goes_farther_than_the_root_in_float32_however_small_the_updates(seed, exponent):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=40).astype(np.float32)
    root = np.full(40, 0.01, dtype=np.float32)
    rows = (g + rng.normal(size=(5, 40)) * 2.0**-exponent).astype(np.float32)
    model = FLTrust()(rows, global_model=g, root=root)
    wide = FLTrust()(rows.astype(float), global_model=g.astype(float), root=root.astype(float))
    np.testing.assert_allclose(model, wide, atol=1e-6)
    assert np.linalg.norm(wide - g) <= np.linalg.norm(root) * (1 + 1e-6)


def test_fltrust_without_a_root_says_how_to_get_one() -> None:
    with pytest.raises(
        InputError, match=r"FLTrust needs .* this round carries none.*pass `root=trained - global_model`"
    ):
        FLTrust()(np.ones((3, 2)))


def test_centered_clipping_keeps_the_radius_of_the_first_step() -> None:
    rows = np.array([[1.0], [3.0], [1e9]])
    found = CenteredClipping(iterations=3)(rows)
    assert found == pytest.approx(CenteredClipping(radius=3.0, iterations=3)(rows))


def test_the_smoothing_of_the_geometric_median_goes_with_the_scale_of_the_models() -> None:
    rows = np.random.default_rng(0).normal(size=(7, 3))
    rule = GeometricMedian(smoothing=0.8)
    assert not np.allclose(rule(rows), GeometricMedian()(rows), rtol=1e-3)
    for scale in (1e-3, 1e3):
        np.testing.assert_allclose(rule(scale * rows), scale * rule(rows), rtol=1e-6)
