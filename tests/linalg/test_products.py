from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flanders.arrays import on_host, to_numpy
from flanders.linalg import blocks
from flanders.linalg.blocks import column_blocks, join_columns, sorted_columns
from flanders.linalg.products import (
    clip_factors,
    combine,
    distances_of_gram,
    gram,
    inner_products,
    less_their_mean,
    mean,
    move,
    products_with,
    projections,
    rough_squared_norms,
    squared_distances,
    squared_norms,
    squares_by_input,
    step_between,
    usable_rows,
)

WIDTHS = [1, 63, 64, 65, 128, 200, 1000]
"""Narrower than a block, exactly one, a few and a bit, powers of two."""


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks of the least width, 65 columns, so that small matrices are cut as large ones are."""
    monkeypatch.setattr(blocks, "HOST_BLOCK", 64)
    monkeypatch.setattr(blocks, "WIDE", 64)
    monkeypatch.setattr(blocks, "DEVICE_BLOCK", (64, 64))


def random_rows(m: int, d: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(m, d)) + 5).astype(dtype)


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(0, 300))
def test_blocks_cover_every_column_once_and_are_never_a_power_of_two_wide(m, d, rows_of_another):
    pieces = [np.empty((m, d), dtype=np.int8), np.empty((rows_of_another, d), dtype=np.int8)]
    blocks = list(column_blocks(*pieces))
    assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(d))
    for block in blocks[:-1]:
        width = block.stop - block.start
        assert width & (width - 1)


@pytest.mark.parametrize("make", [np.asarray, torch.asarray])
@pytest.mark.parametrize("d", WIDTHS)
def test_joined_blocks_are_the_whole_matrix(make, d):
    matrix = make(random_rows(3, d, "float32"))
    joined = join_columns((2 * matrix[:, columns] for columns in column_blocks(matrix)), matrix)
    assert type(joined) is type(matrix)
    assert joined.dtype == matrix.dtype
    assert bool((joined == 2 * matrix).all())


@pytest.mark.parametrize(("start", "outputs", "inputs"), [(0, 1, 5), (3, 4, 7), (2, 30, 3), (0, 3, 500)])
def test_squares_are_added_up_for_each_input_of_a_layer(start, outputs, inputs, convert):
    d = start + outputs * inputs + 4
    rows, center = random_rows(6, d), random_rows(1, d, seed=1)[0]
    layer = (rows - center)[:, start : start + outputs * inputs].reshape(6, outputs, inputs)
    found = squares_by_input(convert(rows), convert(center), start, outputs, inputs)
    np.testing.assert_allclose(found, (layer**2).sum(axis=1), rtol=1e-10)
    layer = layer.reshape(6, inputs, outputs)
    found = squares_by_input(convert(rows), convert(center), start, outputs, inputs, by_input=True)
    np.testing.assert_allclose(found, (layer**2).sum(axis=2), rtol=1e-10)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_everything_agrees_with_the_plain_formula_in_float64(d, dtype, convert):
    rows, center, directions = random_rows(6, d, dtype), random_rows(1, d, dtype, 1)[0], random_rows(2, d, dtype, 2)
    x, c, v = (a.astype(np.float64) for a in (rows, center, directions))
    close = {"rtol": 1e-10, "atol": 1e-10}
    here = convert(rows), convert(center), convert(directions)
    np.testing.assert_allclose(gram(here[0]), x @ x.T, **close)
    np.testing.assert_allclose(gram(here[0], here[1]), (x - c) @ (x - c).T, **close)
    np.testing.assert_allclose(squared_norms(here[0]), (x**2).sum(axis=1), **close)
    np.testing.assert_allclose(squared_norms(here[0], here[1]), ((x - c) ** 2).sum(axis=1), **close)
    np.testing.assert_allclose(projections(here[0], here[2]), x @ v.T, **close)
    np.testing.assert_allclose(projections(here[0], here[2], here[1]), (x - c) @ v.T, **close)
    naive = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(here[0]), naive, **close)
    np.testing.assert_allclose(squared_distances(here[0], here[1]), naive, **close)
    for result in (gram(here[0]), squared_norms(here[0]), projections(here[0], here[2])):
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.float64


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("centred", "skip"), [(False, 0), (True, 0), (True, 3)])
def test_products_of_rows_with_each_other_and_with_directions_come_in_one_pass(d, centred, skip, convert):
    rows, center = random_rows(6, d), random_rows(1, d, seed=1)[0]
    directions = [random_rows(k, d, seed=k) for k in (4, 1)]
    x, v = rows - center if centred else rows, np.concatenate(directions)
    around = convert(center) if centred else None
    found = products_with(convert(rows), [convert(v) for v in directions], around, skip=skip)
    for product, expected in zip(found, (x @ x.T, x @ v.T, v[skip:] @ v[skip:].T), strict=True):
        np.testing.assert_allclose(product, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("size", [1e-25, 1.0, 3e38])
def test_products_with_directions_in_float32_have_six_digits_at_any_size(d, size, convert):
    rows = np.concatenate([random_rows(3, d), size * np.sign(random_rows(3, d, seed=2))]).astype(np.float32)
    directions = [random_rows(4, d, seed=4).astype(np.float32)]
    x, v = rows.astype(np.float64), directions[0].astype(np.float64)
    _, across, _ = products_with(convert(rows), [convert(v) for v in directions])
    error = np.abs(across - x @ v.T) / np.linalg.norm(x, axis=1)[:, None] / np.linalg.norm(v, axis=1)
    assert error.max() < 1e-6


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("chosen", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3], [3, 1]])
def test_rows_less_their_mean_are_those_of_the_plain_formula(d, chosen, convert):
    rows, center = random_rows(5, d), random_rows(1, d, seed=1)[0]
    w, a, b = np.random.default_rng(0).normal(size=(3, len(chosen)))
    found, middle = less_their_mean(convert(rows), np.array(chosen), convert(center), w, a, b)
    assert isinstance(found, type(convert(rows)))
    steps = rows[chosen] - center
    np.testing.assert_allclose(to_numpy(middle), w @ steps, rtol=1e-9, atol=1e-9)
    expected = a[:, None] * steps - b[:, None] * (w @ steps)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("tail", [0, 1, 2])
def test_inner_products_of_stacked_pieces_have_rows_for_the_last_pieces_only(d, tail, convert):
    pieces, center = [random_rows(k, d, seed=k) for k in (3, 1, 4)], random_rows(1, d, seed=9)[0]
    x = np.concatenate(pieces) - center
    skipped = sum(len(p) for p in pieces[:tail])
    found = inner_products([convert(p) for p in pieces], convert(center), tail=tail)
    assert found.shape == (8 - skipped, 8)
    np.testing.assert_allclose(found, (x @ x.T)[skipped:], rtol=1e-10)


def test_a_center_may_be_one_for_each_row():
    rows, centers = random_rows(4, 70), random_rows(4, 70, seed=1)
    np.testing.assert_allclose(squared_norms(rows, centers), ((rows - centers) ** 2).sum(axis=1))


@given(st.integers(0, 2**32), st.integers(1, 9), st.floats(-8, 14))
def test_a_gram_is_symmetric_to_the_bit_and_distances_never_negative(seed, m, exponent):
    rows = 10.0**exponent + np.random.default_rng(seed).normal(size=(m, 90))
    products, distances = gram(rows), squared_distances(rows)
    assert np.array_equal(products, products.T)
    assert np.array_equal(distances, distances.T)
    assert np.all(np.diagonal(distances) == 0)
    assert np.all(distances >= 0)
    assert np.all(distances_of_gram(products) >= 0)


def test_a_center_keeps_small_differences_between_large_models():
    g = random_rows(1, 500, seed=3)[0] * 1e8
    steps = random_rows(5, 500, seed=4)
    naive = ((steps[:, None] - steps[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(squared_distances(g + steps, g), naive, rtol=1e-5)
    around_zero = squared_distances(g + steps, np.zeros(500))
    assert np.abs(around_zero - naive).max() > 1e-2 * naive.max()


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("rows", [None, np.array([4, 0, 2])])
def test_sorted_columns_are_the_sorted_columns(d, rows, convert):
    matrix = random_rows(5, d)
    found = np.concatenate([to_numpy(block) for block in sorted_columns(convert(matrix), rows)])
    assert np.array_equal(found, np.sort(matrix if rows is None else matrix[rows], axis=0).T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_combinations_stay_where_the_rows_are(dtype, convert):
    matrix = random_rows(4, 150, dtype)
    one, several = combine([1.0, 0.0, -2.0, 0.5], convert(matrix)), combine(np.eye(4)[:2], convert(matrix))
    for result in (one, several, mean(convert(matrix))):
        assert type(result) is type(convert(matrix))
        assert result.dtype == convert(matrix).dtype
    np.testing.assert_allclose(to_numpy(one), [1.0, 0.0, -2.0, 0.5] @ matrix.astype(float), rtol=1e-5)
    assert np.array_equal(to_numpy(several), matrix[:2])
    np.testing.assert_allclose(
        to_numpy(mean(convert(matrix), np.array([1.0, 0, 0, 3]))), [0.25, 0, 0, 0.75] @ matrix
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_move_adds_combined_displacements(dtype, convert):
    g = random_rows(1, 150, dtype, 1)[0]
    matrix = (g + random_rows(3, 150, dtype) * 1e-6).astype(dtype)
    a = np.array([2e6, -1e6, 3e5])
    found = move(convert(g), a, convert(matrix))
    assert type(found) is type(convert(g))
    assert found.dtype == convert(g).dtype
    exact = g.astype(float) + a @ (matrix.astype(float) - g.astype(float))
    np.testing.assert_allclose(to_numpy(found), exact, rtol=1e-6)


def test_clipping_shortens_what_is_longer_and_nothing_else():
    lengths = np.array([0.0, 1e-320, 1.0, 4.0, 1e300])
    assert np.array_equal(clip_factors(lengths, 2.0), [1.0, 1.0, 1.0, 0.5, 2e-300])
    assert np.array_equal(clip_factors(lengths, 0.0), [1.0, 0.0, 0.0, 0.0, 0.0])
    assert np.array_equal(clip_factors(lengths, np.inf), np.ones(5))


def test_a_cpu_tensor_is_seen_and_not_copied():
    tensor = torch.zeros(2, 3, requires_grad=True)
    view = on_host(tensor)
    view[0, 0] = 7.0
    assert float(tensor.detach()[0, 0]) == 7.0
    assert on_host(view) is view


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda a: a[:, ::-1], lambda a: np.repeat(a, 2, axis=0)[::2]]
)
def test_the_layout_in_memory_makes_no_difference(layout):
    rows = random_rows(6, 200)
    odd = layout(rows)
    np.testing.assert_allclose(gram(odd), gram(np.ascontiguousarray(odd)), rtol=1e-12)
    np.testing.assert_allclose(mean(odd), np.ascontiguousarray(odd).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize(("dtype", "digits"), [("float32", 1e-6), ("float64", 1e-13)])
def test_rough_norms_have_the_digits_of_the_matrix(d, dtype, digits, convert):
    rows, center = random_rows(6, d, dtype), random_rows(1, d, dtype, 1)[0]
    found = rough_squared_norms(convert(rows), convert(center))
    np.testing.assert_allclose(found, squared_norms(rows, center), rtol=digits)
    np.testing.assert_allclose(rough_squared_norms(convert(rows)), squared_norms(rows), rtol=digits)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-25, 1e25, 3e38])
def test_rough_norms_do_not_leave_the_range_of_float32(size, convert):
    rows = random_rows(3, 200, "float32")
    rows[1] = np.float32(size)
    np.testing.assert_allclose(rough_squared_norms(convert(rows)), squared_norms(rows), rtol=1e-6)
    assert usable_rows(convert(rows)).all()


def test_a_step_between_the_center_and_the_rows_is_a_move(convert):
    rows, center, a = random_rows(4, 200, "float32"), random_rows(1, 200, "float32", 1)[0], np.full(4, 0.2)
    found = to_numpy(step_between(convert(center), a, convert(rows)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, to_numpy(move(center, a, rows)), rtol=1e-6)
