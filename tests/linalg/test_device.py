"""The kernels for NVIDIA GPUs give the results of NumPy, in float64 where NumPy's sums are in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.linalg import device
from flanders.linalg.columns import column_medians, means_around_median, trimmed_means
from flanders.linalg.products import (
    combine,
    gram,
    inner_products,
    products_with,
    projections,
    rough_squared_norms,
    squared_distances,
    squared_norms,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SHAPES = [(1, 40), (2, 1), (5, 333), (16, 4096), (100, 20_001), (128, 1000), (129, 1000), (300, 500)]
"""Fewer rows than a block, exactly one block, and more than one; columns that are and are not multiples of 16."""


def gpu(array):
    return torch.asarray(array, device="cuda")


def rows_of(m, d, dtype="float32"):
    rng = np.random.default_rng(m * d)
    center = rng.normal(size=d)
    return (center + 3e-4 * rng.normal(size=(m, d))).astype(dtype), center.astype(dtype)


def agree(found, expected, tolerance):
    assert found.shape == expected.shape
    if expected.size:
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_the_kernels_are_used_on_this_gpu():
    assert device.suits(gpu(np.ones((2, 3), dtype="float32")))
    assert not device.suits(torch.ones((2, 3)))
    assert not device.suits(gpu(np.ones((2, 3), dtype="float32")).T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_products_keep_small_differences_between_large_models(m, d, dtype):
    rows, center = rows_of(m, d, dtype)
    exact = rows.astype("float64") - center.astype("float64")
    agree(gram(gpu(rows), gpu(center)), exact @ exact.T, 1e-13)
    agree(squared_distances(gpu(rows), gpu(center)), squared_distances(rows, center), 1e-12)
    agree(squared_norms(gpu(rows), gpu(center)), (exact**2).sum(axis=1), 1e-13)
    agree(rough_squared_norms(gpu(rows)), squared_norms(rows), 1e-6)


@pytest.mark.parametrize("norms", [squared_norms, rough_squared_norms])
def test_each_row_may_have_a_center_of_its_own(norms):
    rows, _ = rows_of(7, 333)
    centers = rows_of(8, 333)[0][1:]
    agree(norms(gpu(rows), gpu(centers)), squared_norms(rows, centers), 1e-6)


def test_a_matrix_may_be_empty():
    rows, center = rows_of(4, 50)
    assert projections(gpu(rows), gpu(rows[:0]), gpu(center)).shape == (4, 0)


@pytest.mark.parametrize("tail", [0, 1, 2, 4])
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_products_of_several_matrices_are_in_the_order_of_their_rows(m, d, tail):
    rows, center = rows_of(m, d)
    pieces = [rows, rows[:1] * 2, rows[: m // 2 + 1] * 3, rows[:1] * 4, rows[::2]]
    found = inner_products([gpu(piece) for piece in pieces], gpu(center), tail=tail)
    agree(found, inner_products(pieces, center, tail=tail), 1e-12)


@pytest.mark.parametrize("skip", [0, 3, 30, 31, 34, 37])
def test_products_with_directions_are_those_of_numpy_in_float64(skip):
    rows, center = rows_of(20, 777)
    directions = [rows_of(n, 777)[0] for n in (30, 1, 5, 1)]
    found = products_with(gpu(rows), [gpu(piece) for piece in directions], gpu(center), skip=skip)
    expected = products_with(rows, [piece.astype("float64") for piece in directions], center, skip=skip)
    for one, other in zip(found, expected, strict=True):
        agree(one, other, 1e-12)
    agree(projections(gpu(rows), gpu(directions[0]), gpu(center)), projections(rows, directions[0], center), 1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 16, 99, 100, 129, 1024, 1025])
@pytest.mark.parametrize("rounded", [False, True], ids=["", "with ties"])
def test_column_statistics_are_those_of_numpy(m, rounded):
    rows = np.random.default_rng(m).normal(size=(m, 1003)).astype("float32")
    rows = np.round(2 * rows) / 2 if rounded else rows
    assert np.array_equal(column_medians(gpu(rows)).cpu().numpy(), column_medians(rows))
    for trim in {0, m // 5, (m - 1) // 2}:
        agree(trimmed_means(gpu(rows), trim).cpu().numpy(), trimmed_means(rows, trim), 1e-5)
    chosen = np.sort(np.random.default_rng(1).permutation(m)[: m // 2 + 1])
    for count in {chosen.size, chosen.size - chosen.size // 4, chosen.size // 2 + 1} - {0}:
        found = means_around_median(gpu(rows), min(count, chosen.size), chosen)
        agree(found.cpu().numpy(), means_around_median(rows, min(count, chosen.size), chosen), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_weighted_sums_have_the_type_of_the_rows(m, d, dtype):
    rows, _ = rows_of(m, d, dtype)
    weights = np.random.default_rng(0).random(m)
    found = combine(weights, gpu(rows))
    assert found.dtype == getattr(torch, dtype)
    agree(found.cpu().numpy(), weights @ rows.astype("float64"), 1e-5 if dtype == "float32" else 1e-13)


def test_without_the_kernels_the_results_are_the_same(monkeypatch):
    rows, center = rows_of(12, 5000)
    with_kernels = gram(gpu(rows), gpu(center)), column_medians(gpu(rows)), squared_norms(gpu(rows))
    monkeypatch.setattr(device, "works_on", lambda *_: False)
    agree(gram(gpu(rows), gpu(center)), with_kernels[0], 1e-12)
    assert torch.equal(column_medians(gpu(rows)), with_kernels[1])
    agree(squared_norms(gpu(rows)), with_kernels[2], 1e-12)
