"""Distances and norms of rows, computed from the rows themselves.

If the inner products of all rows are known, it is faster to compute Euclidean distances from the inner products;
see `flanders.linalg.products`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import array_api_compat
import numpy as np

from flanders.arrays import (
    Array,
    FloatMatrix,
    FloatVector,
    IntVector,
    index_like,
    like,
    on_host,
    to_numpy,
    widest_float,
)
from flanders.linalg.blocks import centred_block, centred_blocks, column_blocks

EUCLIDEAN = ("squared-l2", "l2", "cosine")
"""The names of distances that can be computed from inner products alone."""
DISTANCES = (*EUCLIDEAN, "l1")
"""The names of all distances. Instead of a name, functions also take a number p, which means the L^p distance."""

Pairs = Iterable[tuple[Array, Array]]
"""Two matrices of the same shape, as pairs of blocks. A pair has the same columns of both matrices."""


def distance_to_sums(
    updates: Array,
    center: Array,
    pieces: Sequence[Array],
    factors: FloatMatrix,
    shift: FloatVector,
    distance: str | float,
    *,
    centred: bool,
) -> FloatVector:
    """Return the distance of each row of `updates - center` from a second vector, such as a forecast of this row.

    The second vector of row number c is a weighted sum, minus `shift[c] * center`. The sum is over the rows of all
    `pieces`, with the weights `factors[c]`. If `centred` is true, `center` is subtracted from each row of `pieces`
    first. If it is false, the weighted sum may be a whole model, and a shift of 1 turns it into a difference from
    the center. `distance` is one of `DISTANCES`, or the number p of an L^p distance.
    """
    sent, g, known = on_host(updates), on_host(center), [on_host(piece) for piece in pieces]
    xp = array_api_compat.array_namespace(sent)

    def pairs() -> Iterator[tuple[Array, Array]]:
        for columns in column_blocks(*known, sent):
            rows = xp.concat([centred_block(piece, g if centred else None, columns) for piece in known])
            back = like(shift, rows)[:, None] * xp.astype(g[None, columns], rows.dtype)
            yield centred_block(sent, g, columns), like(factors, rows) @ rows - back

    if distance in EUCLIDEAN:
        return _euclidean_distances(pairs(), str(distance))
    return lp_norms((first - second for first, second in pairs()), 1.0 if distance == "l1" else float(distance))


def _euclidean_distances(pairs: Pairs, distance: str) -> FloatVector:
    inner: Array = 0.0
    squares: Array = 0.0
    for first, second in pairs:
        xp = array_api_compat.array_namespace(first)
        if distance == "cosine":
            inner = inner + xp.vecdot(first, second)
            squares = squares + xp.stack([xp.vecdot(first, first), xp.vecdot(second, second)])
        else:
            squares = squares + xp.vecdot(first - second, first - second)
    if distance == "cosine":
        return cosine_distances(_float64(inner), *_float64(squares))
    return _float64(squares) if distance == "squared-l2" else np.sqrt(_float64(squares))


def cosine_distances(inner: FloatVector, one: FloatVector, other: FloatVector) -> FloatVector:
    """Return, for each pair of vectors, 1 minus the cosine of the angle between them.

    If a vector is zero, the result is 1. `inner` has the inner product of each pair. `one` and `other` have the
    squared lengths of the two vectors.
    """
    sizes = np.sqrt(np.maximum(one, 0.0)) * np.sqrt(np.maximum(other, 0.0))  # the product one * other may overflow
    return np.asarray(1.0 - np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0))


def lp_norms(blocks: Iterable[Array], p: float) -> FloatVector:
    """Return the L^p norms of the rows of a matrix, which is given in blocks of columns.

    So that no sum overflows, each number is divided by the largest absolute value of its row before it is raised to
    the power p. If p is small, a norm may still be too large for a float. Then all norms are divided by d^(1/p),
    where d is the number of columns. Their order and their ratios stay the same.

    Examples
    --------
    >>> lp_norms(iter([np.array([[3.0], [1.0]]), np.array([[-4.0], [1.0]])]), 2.0)
    array([5.        , 1.41421356])
    """
    largest: Array = None
    total: Array = 0.0
    d = 0
    for block in blocks:
        xp, d = array_api_compat.array_namespace(block), d + block.shape[1]
        sizes = xp.abs(block)
        new = xp.max(sizes, axis=1)
        new = new if largest is None else xp.maximum(largest, new)
        unit = xp.where(new > 0, new, xp.ones_like(new))
        if largest is not None:
            total = total * (largest / unit) ** p
        total, largest = total + xp.sum((sizes / unit[:, None]) ** p, axis=1), new
    sums, scale = _float64(total), _float64(largest)
    with np.errstate(over="ignore"):
        norms = scale * sums ** (1 / p)
    return norms if np.all(np.isfinite(norms)) else scale * (sums / d) ** (1 / p)


def manhattan_norms(matrix: Array, center: Array) -> FloatVector:
    """Return the sum of the absolute values of each row of `matrix - center`.

    Examples
    --------
    >>> manhattan_norms(np.array([[1.0, -2.0]]), np.array([0.0, 1.0]))
    array([4.])
    """
    return lp_norms(centred_blocks([on_host(matrix)], on_host(center)), 1.0)


def squares_by_layer(
    updates: Array,
    rows: IntVector,
    global_model: Array,
    scale: FloatVector,
    expected: Sequence[tuple[FloatVector, Array, IntVector]],
    layers: Mapping[str, int],
) -> FloatMatrix:
    r"""Return the squared distances of some updates from expected vectors, for each layer.

    `layers` has the name and the number of columns of each layer, in the order of the columns. `rows` has the
    numbers of some rows of `updates`. The result has a row for each entry of `rows`, and a column for each layer.

    The result is the squared length of :math:`s_c (x_c - g) - \sum_k a_{kc} v_{kc}` in the columns of the layer.
    Here c counts the entries of `rows`, :math:`x_c` is the row of `updates` with the number `rows[c]`, :math:`s_c`
    is `scale[c]`, and g is the global model. Each element of `expected` describes one term k of the sum. It has
    three parts: the factors :math:`a_{kc}`, a matrix, and row numbers. Entry c of the row numbers says which row of
    the matrix is :math:`v_{kc}`.
    """
    xp = array_api_compat.array_namespace(updates)
    totals: list[Array] = [0.0] * len(layers)
    parts = [(like(a, updates)[:, None], matrix, index_like(at, updates)) for a, matrix, at in expected]
    stretch, index = like(scale, updates)[:, None], index_like(rows, updates)
    for number, columns in _blocks_of_layers(layers, next(column_blocks(updates)).stop):
        rest = stretch * (xp.take(updates[:, columns], index, axis=0) - global_model[None, columns])
        for a, matrix, at in parts:
            rest = rest - a * xp.take(matrix[:, columns], at, axis=0)
        totals[number] = totals[number] + xp.astype(xp.sum(rest * rest, axis=1), widest_float(xp))
    squares = np.zeros((rows.size, len(layers)))
    for number, total in enumerate(totals):
        squares[:, number] = to_numpy(total)  # an empty layer has a total of 0.0
    return squares


def _blocks_of_layers(layers: Mapping[str, int], width: int) -> Iterator[tuple[int, slice]]:
    """Yield the number of a layer and a slice of its columns, until the slices cover the columns of all layers.

    A slice has at most `width` columns.
    """
    start = 0
    for number, size in enumerate(layers.values()):
        for first in range(start, start + size, width):
            yield number, slice(first, min(first + width, start + size))
        start += size


def _float64(array: Array) -> FloatVector:
    """Return an array of any library as a float64 NumPy array."""
    return np.asarray(to_numpy(array), dtype=np.float64)
