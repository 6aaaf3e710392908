"""Inner products, distances, norms and weighted sums of the rows of an `(m, d)` array.

Inner products, distances and norms are added up in float64 if the library has it. Weighted sums are computed in the
type of the array, except in `move`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import array_api_compat
import numpy as np
from numpy.typing import NDArray

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
from flanders.linalg import device
from flanders.linalg.blocks import block_size, centred_blocks, column_blocks, join, join_columns, product_blocks

LEAST_SINGLE = 1e-20
"""A squared norm below this may be wrong in float32, since float32 rounds very small squares to zero."""
LARGEST_SQUARE = 1e300
"""A row with a larger squared norm cannot be used, since distances to it may overflow. No float32 row is so
long."""


def inner_products(pieces: Sequence[Array], center: Array | None = None, *, tail: int = 0) -> FloatMatrix:
    """Return the inner products of rows, after `center` was subtracted from each row.

    Each piece is a matrix with d columns. The result has a column for each row of all `pieces`, and a row for each
    row of `pieces[tail:]`.

    The center should be near the rows. Small differences between large models would otherwise be lost in rounding
    errors.
    """
    if device.suits(*pieces, center=center):
        old, new = pieces[:tail], pieces[tail:]
        started = [device.start_products(new, center, part, center) for part in (old, new) if part]
        return np.hstack([wait() for wait in started])
    pieces = [on_host(piece) for piece in pieces]
    skipped = sum(piece.shape[0] for piece in pieces[:tail])
    with_old: Array = 0.0
    with_new: Array = 0.0
    for rows in centred_blocks(pieces, None if center is None else on_host(center), product_blocks(*pieces)):
        old, new = rows[:skipped, :], rows[skipped:, :]
        with_old += new @ old.T
        with_new += new @ new.T  # a product of its own: BLAS needs half the time for a matrix times its transpose
    return np.hstack([to_numpy(with_old), to_numpy(with_new)]).astype(np.float64, copy=False)


def projections(matrix: Array, directions: Array, center: Array | None = None) -> FloatMatrix:
    """Return `(matrix - center) @ directions.T`, which is `(m, k)` for k directions."""
    if device.suits(matrix, directions, center=center):
        return device.products_of_pieces([matrix], center, [directions], None)
    matrix, directions = on_host(matrix), on_host(directions)
    columns = list(column_blocks(matrix, directions))
    blocks = centred_blocks([matrix], None if center is None else on_host(center), columns)
    total: Array = 0.0
    for rows, others in zip(blocks, centred_blocks([directions], None, columns), strict=True):
        total = total + rows @ others.T
    return np.asarray(to_numpy(total), dtype=np.float64)


def products_with(
    matrix: Array, directions: Sequence[Array], center: Array | None = None, *, skip: int = 0
) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
    """Return three matrices of inner products, from one pass over the data.

    - `(m, m)`: the products of the rows with each other, after `center` was subtracted from the rows.
    - `(m, k)`: the products of these differences with the k directions. If the directions are in float32, these
      products are accurate to about six digits. They then take half the time.
    - `(k - skip, k - skip)`: the products of the directions with each other, without the first `skip` of them.

    Each element of `directions` is a matrix with d columns. The k directions are the rows of all these matrices.
    The center is not subtracted from the directions.
    """
    if device.suits(matrix, *directions, center=center):
        return _products_on_device(matrix, directions, center, skip)
    matrix, directions = on_host(matrix), [on_host(piece) for piece in directions]
    center = None if center is None else on_host(center)
    xp = array_api_compat.array_namespace(matrix)
    if all(piece.dtype == xp.float32 for piece in directions):
        with np.errstate(over="ignore", invalid="ignore"):
            found = _products_with(matrix, directions, center, skip, xp.float32)
        if np.isfinite(found[1]).all():  # no product was too large for float32
            return found
    return _products_with(matrix, directions, center, skip, widest_float(xp))


def _products_with(
    matrix: Array, directions: Sequence[Array], center: Array | None, skip: int, dtype: object
) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
    """Return the results of `products_with`. The products with the directions are computed in `dtype`."""
    xp, columns = array_api_compat.array_namespace(matrix), product_blocks(matrix, *directions)
    widest = widest_float(xp)
    totals: list[Array] = [0.0, 0.0, 0.0]
    blocks = centred_blocks([matrix], center, columns), centred_blocks(directions, None, columns, dtype)
    for rows, others in zip(*blocks, strict=True):
        last = xp.astype(others[skip:, :], widest, copy=False)
        totals[0] += rows @ rows.T
        totals[1] += xp.astype(xp.astype(rows, dtype, copy=False) @ others.T, widest, copy=False)
        totals[2] += last @ last.T
    own, across, between = (np.asarray(to_numpy(total), dtype=np.float64) for total in totals)
    return (own + own.T) / 2, across, (between + between.T) / 2


def _products_on_device(
    matrix: Array, directions: Sequence[Array], center: Array | None, skip: int
) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
    """Return the results of `products_with`, all of them computed in float64."""
    last, left = [], skip
    for piece in directions:
        if left < piece.shape[0]:
            last.append(piece[left:, :])
        left = max(0, left - piece.shape[0])
    own = [matrix]
    with_each_other = device.start_products(own, center, own, center)
    along = device.start_products(own, center, directions, None)
    between = device.start_products(last, None, last, None) if last else lambda: np.zeros((0, 0))
    return with_each_other(), along(), between()


def gram(matrix: Array, center: Array | None = None) -> FloatMatrix:
    """Return the `(m, m)` inner products of the rows, after `center` was subtracted from each row."""
    product = inner_products([matrix], center)
    return (product + product.T) / 2


def squared_distances(matrix: Array, center: Array | None = None) -> FloatMatrix:
    """Return the `(m, m)` squared Euclidean distances between rows.

    `center` should be a point near the rows. Default: the first row.
    """
    products = gram(matrix, matrix[0, :] if center is None else center)
    return distances_of_gram(products)


def distances_of_gram(products: FloatMatrix) -> FloatMatrix:
    """Return squared distances from inner products: |x|^2 + |y|^2 - 2 <x, y>, and at least zero."""
    norms = np.diagonal(products)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2 * products, 0.0)
    np.fill_diagonal(squared, 0.0)
    return squared


def lengths_of_gram(products: FloatMatrix) -> FloatVector:
    """Return the lengths of vectors from their inner products. A length below 1e-100 becomes 1e-100, never zero."""
    return np.sqrt(np.maximum(np.diagonal(products), 1e-200))


def cosines_of_gram(products: FloatMatrix) -> FloatMatrix:
    """Return the cosines between vectors from their inner products."""
    lengths = lengths_of_gram(products)
    return products / np.outer(lengths, lengths)


def cosine_distances_between(matrix: Array, center: Array | None = None) -> FloatMatrix:
    """Return the `(m, m)` distances 1 - cos between the rows, after `center` was subtracted from each row.

    They are rounded to 13 decimal places, so that equal distances do not differ by rounding errors.
    """
    return np.clip(np.round(1.0 - cosines_of_gram(gram(matrix, center)), 13), 0.0, 2.0)


def squared_norms(matrix: Array, center: Array | None = None) -> FloatVector:
    """Return the `(m,)` squared norms of the rows, after `center` was subtracted from each row."""
    if device.suits(matrix, center=center):
        return device.row_squares(matrix, center)
    matrix = on_host(matrix)
    xp = array_api_compat.array_namespace(matrix)
    total: Array = 0.0
    for block in centred_blocks([matrix], None if center is None else on_host(center)):
        total = total + xp.vecdot(block, block)
    return np.asarray(to_numpy(total), dtype=np.float64)


def squares_by_input(
    matrix: Array, center: Array | None, start: int, outputs: int, inputs: int, *, by_input: bool = False
) -> FloatMatrix:
    """Return, for each row and each input of a layer, the sum of the squared weights of this input, `(m, inputs)`.

    The layer is in the columns from `start` on. Each of its outputs has a weight for each input. The weights of an
    output are neighbours, or with `by_input` those of an input. `center` is subtracted from each row first.
    """
    layer = slice(start, start + outputs * inputs)
    matrix, center = on_host(matrix[:, layer]), None if center is None else on_host(center[layer])
    xp, m = array_api_compat.array_namespace(matrix), matrix.shape[0]
    group = outputs if by_input else inputs
    width = group * max(1, block_size(matrix) // (m * group))
    columns = [slice(first, min(first + width, outputs * inputs)) for first in range(0, outputs * inputs, width)]
    squares = (xp.reshape(block * block, (m, -1, group)) for block in centred_blocks([matrix], center, columns))
    if by_input:
        found = xp.concat([xp.sum(of_inputs, axis=2) for of_inputs in squares], axis=1)
    else:
        found = sum(xp.sum(of_outputs, axis=1) for of_outputs in squares)
    return np.asarray(to_numpy(found), dtype=np.float64)


def rough_squared_norms(matrix: Array, center: Array | None = None) -> FloatVector:
    """Return about the same as `squared_norms` in half the time. The sums are in the type of the matrix.

    In float32 they have about six digits. If one of them is too large or too small for float32, all are computed by
    `squared_norms`.
    """
    source, at = on_host(matrix), None if center is None else on_host(center)
    xp = array_api_compat.array_namespace(source)
    with np.errstate(over="ignore", invalid="ignore"):
        if device.suits(source, center=at):
            found = device.row_squares(source, at, rough=True)
        else:
            total: Array = 0.0
            for columns in column_blocks(source):
                block = source[:, columns] if at is None else source[:, columns] - at[..., columns]
                total = total + xp.astype(xp.vecdot(block, block), widest_float(xp))
            found = np.asarray(to_numpy(total), dtype=np.float64)
        fits = source.dtype != xp.float32 or bool(np.all((found > LEAST_SINGLE) & (found < np.inf)))
        return found if fits else squared_norms(matrix, center)


def usable_rows(matrix: Array) -> NDArray[np.bool_]:
    """Return, for each row, whether it is finite and not so large that squared distances may overflow."""
    return rough_squared_norms(matrix) < LARGEST_SQUARE  # false for NaN


def clip_factors(lengths: FloatVector, radius: float) -> FloatVector:
    """Return a factor from 0 to 1 for each length. The length times its factor is at most `radius`."""
    return np.divide(radius, lengths, out=np.ones_like(lengths), where=lengths > radius)


def less_their_mean(
    matrix: Array, rows: IntVector, center: Array, weights: FloatVector, factors: FloatVector, shares: FloatVector
) -> tuple[Array, Array]:
    r"""Return :math:`a_i (x_i - c) - b_i v` for these rows of a matrix, and :math:`v = \sum_i w_i (x_i - c)`.

    Here :math:`x_i` are the `rows`, c is the `center`, w are the `weights`, a the `factors`, and b the `shares`.
    """
    source, at = on_host(matrix), on_host(center)[None, :]
    xp = array_api_compat.array_namespace(source)
    chosen = None if np.array_equal(rows, np.arange(source.shape[0])) else index_like(rows, source)
    w, a, b = (like(x, source) for x in (weights, factors, shares))
    means = []

    def results() -> Iterator[Array]:
        for columns in column_blocks(source):
            block = source[:, columns]
            steps = (block if chosen is None else xp.take(block, chosen, axis=0)) - at[:, columns]
            means.append(w @ steps)
            yield a[:, None] * steps - b[:, None] * means[-1][None, :]

    return like(join_columns(results(), source), matrix), join(means, matrix)


def scaled_around(matrix: Array, center: Array, factors: FloatVector) -> Array:
    """Return the rows after the displacement of each row from `center` was multiplied by its factor."""
    source, at = on_host(matrix), on_host(center)[None, :]
    factor = like(factors, source)[:, None]
    blocks = (at[:, c] + factor * (source[:, c] - at[:, c]) for c in column_blocks(source))
    return like(join_columns(blocks, source), matrix)


def combine(coefficients: FloatMatrix, matrix: Array) -> Array:
    """Return `coefficients @ matrix`: one weighted sum of the rows, `(d,)`, or several, `(k, d)`."""
    if np.ndim(coefficients) == 1 and device.suits(matrix):
        return device.weighted_sum(coefficients, matrix)
    return like(np.asarray(coefficients), matrix) @ matrix


def mean(matrix: Array, weights: FloatVector | None = None) -> Array:
    """Return the weighted average of the rows. By default all weights are equal."""
    w = np.ones(matrix.shape[0]) if weights is None else weights
    return combine(w / w.sum(), matrix)


def step_between(center: Array, coefficients: FloatVector, matrix: Array) -> Array:
    """Return the same as `move`, for coefficients that are not negative and add up to at most 1.

    The result is then an average of the center and the rows. No large numbers cancel, so float64 is not needed.
    """
    return (1.0 - float(coefficients.sum())) * center + combine(coefficients, matrix)


def clipped_steps(matrix: Array, start: Array, shares: FloatVector, radius: float | None, iterations: int) -> Array:
    r"""Return v after `iterations` steps :math:`v \leftarrow v + \sum_c p_c (x_c - v) \min(1, \tau / \|x_c - v\|)`.

    Here :math:`x_c` are the rows of the matrix, and p are the `shares`, which add up to 1. :math:`\tau` is the
    `radius`; if it is None, the median distance of the rows to `start`. The first v is `start`.
    """
    v = start
    for _ in range(iterations):
        lengths = np.sqrt(rough_squared_norms(matrix, v))
        radius = float(np.median(lengths)) if radius is None else radius
        v = step_between(v, shares * clip_factors(lengths, radius), matrix)
    return v


def move(center: Array, coefficients: FloatVector, matrix: Array) -> Array:
    """Return `center + coefficients @ (matrix - center)`, computed in float64 if the library has it.

    The center is subtracted from the rows first. Otherwise, if rows are close to the center and coefficients are
    large, rounding errors would be large.
    """
    at, rows = on_host(center), on_host(matrix)
    xp = array_api_compat.array_namespace(rows)
    a = like(coefficients, rows, widest_float(xp))
    blocks = zip(column_blocks(rows), centred_blocks([rows], at), strict=True)
    return join([a @ block + xp.astype(at[c], widest_float(xp)) for c, block in blocks], matrix)
