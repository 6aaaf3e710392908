"""Functions of rows in which small parameters count as zero: lengths, signs and weighted sums.

The aggregator `Lasa` uses them.
"""

from __future__ import annotations

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatVector, like, on_host, to_numpy, widest_float
from flanders.linalg.blocks import centred_block, column_blocks, join


def row_limits(matrix: Array, center: Array, dropped: int) -> FloatVector:
    """Return, for each row of `matrix - center`, its `dropped`-th smallest absolute value, called its limit.

    In the other functions of this module, a number whose absolute value is at most the limit of its row counts as
    zero. So at least `dropped` numbers of each row count as zero. If `dropped` is 0, the limit is -1, and no number
    counts as zero. One row is sorted at a time, so that no copy of the matrix is needed.

    Examples
    --------
    >>> row_limits(np.array([[3.0, -4.0, 1.0, 2.0]]), np.zeros(4), 2)
    array([2.])
    """
    rows, at = on_host(matrix), on_host(center)
    xp = array_api_compat.array_namespace(rows)
    if dropped == 0:
        return np.full(rows.shape[0], -1.0)
    return np.array([float(xp.sort(xp.abs(rows[i, :] - at))[dropped - 1]) for i in range(rows.shape[0])])


def sparse_statistics(matrix: Array, center: Array, limits: FloatVector) -> tuple[FloatVector, FloatVector]:
    """Return the length of each row of `matrix - center`, and the share of positive numbers among its nonzero ones.

    A number whose absolute value is at most the limit of its row counts as zero. If all numbers of a row count as
    zero, the share is a half.

    Examples
    --------
    >>> sparse_statistics(np.array([[3.0, 4.0, -1.0]]), np.zeros(3), np.array([1.0]))
    (array([5.]), array([1.]))
    """
    rows, at = on_host(matrix), on_host(center)
    xp = array_api_compat.array_namespace(rows)
    totals: list[Array] = [0, 0, 0]
    for c in column_blocks(rows):
        block = _sparse_block(rows, at, limits, c)
        totals[0] = totals[0] + xp.vecdot(block, block)
        totals[1] = totals[1] + xp.count_nonzero(block > 0, axis=1)
        totals[2] = totals[2] + xp.count_nonzero(block < 0, axis=1)
    squares, up, down = (to_numpy(total).astype(np.float64) for total in totals)
    shares = np.divide(up, up + down, out=np.full_like(up, 0.5), where=up + down > 0)
    return np.sqrt(squares), shares


def sparse_move(center: Array, coefficients: FloatVector, matrix: Array, limits: FloatVector) -> Array:
    """Return `center + coefficients @ (matrix - center)`, where differences up to the row's limit count as zero."""
    rows, at = on_host(matrix), on_host(center)
    xp = array_api_compat.array_namespace(rows)
    a = like(coefficients, rows, widest_float(xp))
    blocks = ((c, _sparse_block(rows, at, limits, c)) for c in column_blocks(rows))
    return join([a @ block + xp.astype(at[c], widest_float(xp)) for c, block in blocks], matrix)


def _sparse_block(rows: Array, at: Array, limits: FloatVector, columns: slice) -> Array:
    xp = array_api_compat.array_namespace(rows)
    # The limits were computed in the type of the rows. The same type is used here, so that rounding is the same.
    large = xp.abs(rows[:, columns] - at[None, columns]) > like(limits, rows)[:, None]
    block = centred_block(rows, at, columns)
    return xp.where(large, block, xp.zeros_like(block))
