"""Selects and replaces rows, columns and entries of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, BoolVector, IntVector, index_like, like


def reordered(matrix: NDArray[Any], rows: IntVector, columns: IntVector | None = None) -> NDArray[Any]:
    """Return `matrix[np.ix_(rows, columns)]`, four times as fast. Default: the same columns as rows."""
    return matrix.take(rows, axis=0).take(rows if columns is None else columns, axis=1)


def take_rows(matrix: Array, rows: IntVector) -> Array:
    """Return the rows of a matrix with the numbers `rows`, in this order."""
    return array_api_compat.array_namespace(matrix).take(matrix, index_like(rows, matrix), axis=0)


def take_columns(matrix: Array, columns: IntVector) -> Array:
    """Return the columns of a matrix with the numbers `columns`, in this order."""
    return array_api_compat.array_namespace(matrix).take(matrix, index_like(columns, matrix), axis=1)


def replace_rows(matrix: Array, rows: IntVector, vectors: Sequence[Array]) -> Array:
    """Return a copy of a matrix in which each of the given rows is replaced by one of the vectors."""
    xp = array_api_compat.array_namespace(matrix)
    new = dict(zip(rows.tolist(), vectors, strict=True))
    return xp.stack([new[i] if i in new else matrix[i, :] for i in range(matrix.shape[0])])


def replace_columns(matrix: Array, columns: IntVector, values: Array, rows: BoolVector) -> Array:
    """Return a copy of a matrix with `values` in the given columns, but only in the rows where `rows` is true.

    Examples
    --------
    >>> values, rows = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([True, False])
    >>> replace_columns(np.zeros((2, 3)), np.array([2, 0]), values, rows)
    array([[2., 0., 1.],
           [0., 0., 0.]])
    """
    xp = array_api_compat.array_namespace(matrix)
    d = matrix.shape[1]
    place, inside = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=bool)
    place[columns], inside[columns] = np.arange(columns.size), True
    spread = take_columns(like(values, matrix), place)
    replaced = like(rows, matrix, xp.bool)[:, None] & like(inside, matrix, xp.bool)[None, :]
    return xp.where(replaced, spread, matrix)


def largest_entries(vector: Array, count: int) -> Array:
    """Return a boolean vector that is true for the `count` entries with the largest absolute values.

    If more entries have the same absolute value as the last of these, they are true, too. Zeros are always false.

    Examples
    --------
    >>> largest_entries(np.array([1.0, -5.0, 2.0, 0.0]), 2)
    array([False,  True,  True, False])
    """
    xp = array_api_compat.array_namespace(vector)
    sizes = xp.abs(vector)
    if count == 0:
        return sizes < 0
    return (sizes >= xp.sort(sizes)[vector.shape[0] - count]) & (sizes > 0)
