"""Kernels for GPUs, written in Triton. Only `device` imports this module.

A kernel reads each number of a matrix once, and keeps in registers what it computes from it. The same computation
with the functions of PyTorch writes intermediate arrays as large as the matrix, and reads them again.

In these kernels a matrix has m rows and d columns, and the numbers of a row lie side by side in memory. `stride` is
the distance between two rows. A program is one of the many copies of a kernel that run at the same time. Parameters
in capitals are fixed when a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

DEPTH = tl.constexpr(32)
"""How many columns `product_kernel` reads at a time. With 16, it took 3% longer on an H200."""


@triton.jit
def _count_below(keys: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """Return how many keys of each column are below the limit of the column."""
    return tl.sum((keys < limit[None, :]).to(tl.int32), axis=0)


@triton.jit
def _order_statistic(keys: tl.tensor, k: tl.tensor) -> tl.tensor:
    """Return the k-th smallest key of each column (k counts from 0), found bit by bit.

    It is the largest number v such that at most k keys are below v.
    """
    found = tl.where(_count_below(keys, tl.sum(keys * 0, axis=0)) <= k, 0, -2147483648)
    for i in range(31):
        candidate = found + (1 << (30 - i))
        found = tl.where(_count_below(keys, candidate) <= k, candidate, found)
    return found


@triton.jit
def _ordered(bits: tl.tensor) -> tl.tensor:
    """Turn the bits of float32 numbers into integers in the same order as the numbers, and such integers back."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _as_float(keys: tl.tensor) -> tl.tensor:
    return _ordered(keys).to(tl.float32, bitcast=True)


@triton.jit
def _middle(keys: tl.tensor, m: tl.tensor) -> tl.tensor:
    """Return the median of each column of m keys, as a float."""
    lower = _order_statistic(keys, (m - 1) // 2)
    above = tl.min(tl.where(keys > lower[None, :], keys, 0x7FFFFFFF), axis=0)
    upper = tl.where(_count_below(keys, lower + 1) > m // 2, lower, above)
    if m % 2 == 1:
        upper = lower
    return tl.where(lower == upper, _as_float(lower), _as_float(lower) / 2 + _as_float(upper) / 2)


@triton.jit(do_not_specialize=["m", "count"])
def column_kernel(
    matrix: tl.tensor,
    index: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    m: tl.tensor,
    d: tl.tensor,
    count: tl.tensor,
    KIND: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Compute the median (KIND 0), the trimmed mean (1) or the mean around the median (2) of each column.

    `index` has the numbers of the m rows to use, and ROWS is at least m. `count` is how many values are dropped at
    each end (1), or how many are averaged (2).

    A sort would exchange values between registers. Instead, a number with k smaller ones is found bit by bit: each
    bit needs one count of the values below a candidate.
    """
    columns = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    at = tl.arange(0, ROWS)
    rows = tl.load(index + at, mask=at < m, other=0)
    used = (at < m)[:, None] & (columns < d)[None, :]
    x = tl.load(matrix + rows[:, None] * stride + columns[None, :], mask=used, other=0.0)
    keys = tl.where(used, _ordered(x.to(tl.int32, bitcast=True)), 0x7FFFFFFF)
    if KIND == 0:
        result = _middle(keys, m)
    elif KIND == 1:
        low, high = _order_statistic(keys, count), _order_statistic(keys, m - count - 1)
        inside = (keys > low[None, :]) & (keys < high[None, :])
        of_low = (_count_below(keys, low + 1) - count).to(tl.float32)
        of_high = (m - count - _count_below(keys, high)).to(tl.float32)
        total = tl.sum(tl.where(inside, x, 0.0), axis=0) + of_low * _as_float(low) + of_high * _as_float(high)
        result = tl.where(low == high, _as_float(low), total / (m - 2 * count).to(tl.float32))
    else:
        middle = _middle(keys, m)
        away = tl.where(used, tl.abs(x - middle[None, :]).to(tl.int32, bitcast=True), 0x7FFFFFFF)
        limit = _order_statistic(away, count - 1)
        near, tied = away < limit[None, :], away == limit[None, :]
        below, above = tied & (x < middle[None, :]), tied & (x >= middle[None, :])
        wanted = (count - _count_below(away, limit)).to(tl.float32)
        lower, upper = tl.sum(below.to(tl.float32), axis=0), tl.sum(above.to(tl.float32), axis=0)
        of_lower = tl.minimum(wanted, lower)
        total = tl.sum(tl.where(near, x, 0.0), axis=0)
        total += of_lower / tl.maximum(lower, 1.0) * tl.sum(tl.where(below, x, 0.0), axis=0)
        total += (wanted - of_lower) / tl.maximum(upper, 1.0) * tl.sum(tl.where(above, x, 0.0), axis=0)
        result = total / count.to(tl.float32)
    tl.store(out + columns, result, mask=columns < d)


@triton.jit
def _centred(
    matrix: tl.tensor,
    center: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    stride: tl.tensor,
    m: tl.tensor,
    d: tl.tensor,
    TYPE: tl.constexpr,
) -> tl.tensor:
    """Return a block of `matrix - center`, computed in the given type; zeros where it is outside the matrix."""
    used = (rows < m)[:, None] & (columns < d)[None, :]
    x = tl.load(matrix + rows[:, None].to(tl.int64) * stride + columns[None, :], mask=used, other=0.0)
    x = x.to(TYPE)
    if center is not None:
        x -= tl.load(center + columns, mask=columns < d, other=0.0).to(TYPE)[None, :]
        x = tl.where(used, x, 0.0)
    return x


@triton.jit(do_not_specialize=["m", "k"])
def product_kernel(
    first: tl.tensor,
    first_center: tl.tensor | None,
    second: tl.tensor | None,
    second_center: tl.tensor | None,
    out: tl.tensor,
    first_stride: tl.tensor,
    second_stride: tl.tensor,
    m: tl.tensor,
    k: tl.tensor,
    d: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Compute the inner products of the m rows of `first` with the k rows of `second`, in float64.

    A center is subtracted from the rows first, unless it is None. If `second` is None, it is the same as `first`,
    and fits into one block. Each program adds up a part of the d columns, and writes its sums to an `(m, k)` matrix
    of its own.
    """
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    others = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    steps = tl.cdiv(tl.cdiv(d, DEPTH), tl.num_programs(0))
    start = tl.program_id(0).to(tl.int64) * steps * DEPTH
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float64)
    for step in range(steps):
        columns = start + step * DEPTH + tl.arange(0, DEPTH)
        x = _centred(first, first_center, rows, columns, first_stride, m, d, tl.float64)
        y = (
            x
            if second is None
            else _centred(second, second_center, others, columns, second_stride, k, d, tl.float64)
        )
        total = tl.dot(x, tl.trans(y), total, out_dtype=tl.float64)
    wide = rows[:, None].to(tl.int64) * k + others[None, :]
    place = out + tl.program_id(0).to(tl.int64) * m * k
    tl.store(place + wide, total, mask=(rows < m)[:, None] & (others < k)[None, :])


@triton.jit(do_not_specialize=["m"])
def square_kernel(
    matrix: tl.tensor,
    center: tl.tensor | None,
    out: tl.tensor,
    stride: tl.tensor,
    m: tl.tensor,
    d: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Compute the squared norms of the rows, after `center` is subtracted, unless it is None.

    Each program adds up ROWS rows and a part of the columns, in the type of `out`. With n programs along the
    columns, `out` is `(n, m)`.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    steps = tl.cdiv(tl.cdiv(d, COLUMNS), tl.num_programs(1))
    start = tl.program_id(1).to(tl.int64) * steps * COLUMNS
    total = tl.zeros([ROWS, COLUMNS], dtype=out.dtype.element_ty)
    for step in range(steps):
        columns = start + step * COLUMNS + tl.arange(0, COLUMNS)
        x = _centred(matrix, center, rows, columns, stride, m, d, out.dtype.element_ty)
        total += x * x
    tl.store(out + tl.program_id(1).to(tl.int64) * m + rows, tl.sum(total, axis=1), mask=rows < m)


@triton.jit(do_not_specialize=["m"])
def sum_kernel(
    matrix: tl.tensor,
    weights: tl.tensor,
    out: tl.tensor,
    stride: tl.tensor,
    m: tl.tensor,
    d: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """Compute the weighted sum of the rows, in the type of `out`. ROWS is how many rows are read at a time."""
    columns = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], dtype=out.dtype.element_ty)
    for first in range(0, m, ROWS):
        rows = first + tl.arange(0, ROWS)
        weight = tl.load(weights + rows, mask=rows < m, other=0.0)
        used = (rows < m)[:, None] & (columns < d)[None, :]
        x = tl.load(matrix + rows[:, None].to(tl.int64) * stride + columns[None, :], mask=used, other=0.0)
        total += tl.sum(weight[:, None] * x, axis=0)
    tl.store(out + columns, total, mask=columns < d)
