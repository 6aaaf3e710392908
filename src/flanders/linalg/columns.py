"""Statistics of each column of an `(m, d)` array: mean, standard deviation, median, trimmed means."""

from __future__ import annotations

from collections.abc import Iterator

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatVector, IntVector, copied, like, on_host, to_numpy, widest_float
from flanders.linalg import device
from flanders.linalg.blocks import centred_block, column_blocks, join, sorted_columns


def column_means(rows: Array, center: Array) -> Array:
    """Return the mean of each column of `rows - center`, computed in float64 if the library has it."""
    return _statistics(rows, center, "mean")[0]


def column_moments(rows: Array, center: Array) -> tuple[Array, Array]:
    """Return the mean and the (population) standard deviation of each column of `rows - center`.

    Both are computed in float64 if the library has it. If all rows are equal to the center in a column, the mean of
    this column is exactly zero.

    Examples
    --------
    >>> column_moments(np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([0.0, 7.0]))
    (array([2., 0.]), array([1., 0.]))
    """
    mean, deviation = _statistics(rows, center, "mean", "std")
    return mean, deviation


def _statistics(rows: Array, center: Array, *names: str) -> list[Array]:
    """Return statistics of each column of `rows - center`. `names` are the names of array API functions."""
    source, origin = on_host(rows), on_host(center)
    xp = array_api_compat.array_namespace(source)
    results: list[list[Array]] = [[] for _ in names]
    for columns in column_blocks(source):
        block = centred_block(source, origin, columns)
        for pieces, name in zip(results, names, strict=True):
            pieces.append(getattr(xp, name)(block, axis=0))
    return [join(pieces, rows) for pieces in results]


def sign_sums(rows: Array, center: Array) -> Array:
    """Return the sum of the signs in each column of `rows - center`.

    Examples
    --------
    >>> sign_sums(np.array([[1.0, 2.0], [3.0, 0.0], [5.0, 1.0]]), np.array([0.0, 1.0]))
    array([3., 0.])
    """
    source, origin = on_host(rows), on_host(center)
    xp = array_api_compat.array_namespace(source)
    blocks = (centred_block(source, origin, columns) for columns in column_blocks(source))
    return join([xp.sum(xp.sign(block), axis=0) for block in blocks], rows)


def most_varied_columns(matrix: Array, count: int) -> IntVector:
    """Return the positions of the `count` columns with the largest variance, in rising order."""
    xp = array_api_compat.array_namespace(matrix)
    variance = to_numpy(xp.var(matrix - matrix[:1, :], axis=0))
    return np.sort(np.argsort(-variance, kind="stable")[:count]).astype(np.int64)


def column_medians(matrix: Array) -> Array:
    """Return the median of each column."""
    fast = device.column_statistic(matrix, device.MEDIAN)
    if fast is not None:
        return fast
    return join([_median_of_sorted(values) for values in sorted_columns(matrix)], matrix)


def trimmed_means(matrix: Array, trim: int) -> Array:
    """Return the mean of each column without its `trim` lowest and its `trim` highest values."""
    fast = device.column_statistic(matrix, device.TRIMMED_MEAN, trim)
    if fast is not None:
        return fast
    m = matrix.shape[0]
    pieces = []
    for values in sorted_columns(matrix):
        average = like(np.full(m - 2 * trim, 1 / (m - 2 * trim)), values)
        pieces.append(values[:, trim : m - trim] @ average)
    return join(pieces, matrix)


def means_around_median(matrix: Array, count: int, rows: IntVector | None = None) -> Array:
    """Return, for each column, the mean of the `count` values that are nearest to the median of the column.

    If `rows` is given, only these rows are used. The search starts with the `count` lowest values of a sorted
    column, and then makes moves. Move number j (from 0) exchanges value number j of the sorted column for value
    number j + `count`. The move is good if the new value is nearer to the median than the old one. With rising j
    both values rise. So if one move is not good, none of the later moves is. Therefore all moves can be judged at
    once, and the good ones are made.
    """
    fast = device.column_statistic(matrix, device.MEAN_AROUND_MEDIAN, count, rows)
    if fast is not None:
        return fast
    pieces = []
    for values in sorted_columns(matrix, rows):
        xp = array_api_compat.array_namespace(values)
        steps = values.shape[1] - count
        middle = _median_of_sorted(values)[:, None]
        is_good = middle - values[:, :steps] > values[:, count:] - middle
        run = values[:, :count]
        for first in range(0, steps, count):  # `count` moves at a time: move number j changes run[:, j % count]
            last = min(first + count, steps)
            moved = xp.where(
                is_good[:, first:last], values[:, first + count : last + count], run[:, : last - first]
            )
            run = xp.concat([moved, run[:, last - first :]], axis=1)
        pieces.append(run @ like(np.full(count, 1 / count), run))
    return join(pieces, matrix)


def weighted_trimmed_means(matrix: Array, weights: FloatVector, share: float) -> Array:
    """Return the weighted mean of each column without its lowest and its highest values.

    The dropped low values have the share `share` of the total weight, and so have the dropped high values. If only
    a part of the weight of a value is dropped, the value counts with the rest of its weight. A rest that is as
    small as a rounding error counts as zero. A huge value would otherwise change the mean even with a weight of
    1e-17.

    With `share=0.5` the result is the weighted median. If the values up to some value have exactly half of the
    weight, the median is the mean of this value and the next higher one.
    """
    pieces = []
    for values, value_weights in _sorted_with_weights(matrix, weights):
        xp = array_api_compat.array_namespace(values)
        up_to = xp.cumulative_sum(value_weights, axis=1)  # the weight of all values up to this one
        below = up_to - value_weights  # the weight of all lower values
        rounding = 2 * values.shape[1] * float(xp.finfo(value_weights.dtype).eps)
        if share >= 0.5:
            at_half = (below <= 0.5 + rounding) & (up_to >= 0.5 - rounding) & (value_weights > 0)
            left = xp.astype(at_half, value_weights.dtype)
        else:
            left = xp.clip(up_to, share, 1 - share) - xp.clip(below, share, 1 - share)
            left = xp.where(left > rounding, left, xp.zeros_like(left))
        pieces.append(xp.sum(values * left, axis=1) / xp.sum(left, axis=1))
    return join(pieces, matrix)


def _median_of_sorted(values: Array) -> Array:
    """Return the median of each row of a `(width, m)` array with sorted rows."""
    m = values.shape[1]
    middle = values[:, m // 2]
    if m % 2:
        return copied(middle)  # a view would keep the whole block in memory
    return values[:, m // 2 - 1] / 2 + middle / 2


def _sorted_with_weights(matrix: Array, weights: FloatVector) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of sorted columns as `(width, m)`, each with the weights of its values, also `(width, m)`."""
    source = on_host(matrix)
    xp = array_api_compat.array_namespace(source)
    share = like(weights / weights.sum(), source, widest_float(xp))
    for columns in column_blocks(source):
        block = source[:, columns].T
        order = xp.argsort(block, axis=1, stable=True)
        value_weights = xp.reshape(xp.take(share, xp.reshape(order, (-1,))), order.shape)
        yield xp.take_along_axis(block, order, axis=1), value_weights
