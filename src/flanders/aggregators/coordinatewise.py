"""Rules that look at one parameter at a time: median, trimmed mean, mean around the median."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Aggregator, minority
from flanders.arrays import Array, FloatVector, IntVector, copied, like, on_host, widest
from flanders.checks import InputError, check_number
from flanders.linalg.blocks import column_blocks, join, sorted_columns
from flanders.round import Round


@dataclass(frozen=True)
class Median(Aggregator):
    """Take the median of each parameter.

    Holds while malicious clients are fewer than half. `weighted=True` takes the weighted
    median: the value at which half of the total weight lies on either side.

    Examples
    --------
    >>> Median()(np.array([[1., 9.], [2., 2.], [900., 4.]]))
    array([2., 4.])

    References
    ----------
    Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018.
    """

    weighted: bool = False

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the (weighted) median of each column."""
        if self.weighted and not is_uniform(round_.weights):
            return weighted_trimmed_mean(round_, 0.5)
        return join([median_of_sorted(s) for s in sorted_columns(round_.updates)], round_.updates)


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """Average each parameter after dropping its `trim` lowest and highest values.

    `trim` is a number of clients a side, or a fraction of the round (`0.2`, the paper's
    setting: a fifth a side, rounded down). `weighted=True` cuts that share of the total
    *weight* on each side and averages the rest by weight.

    Examples
    --------
    >>> TrimmedMean(trim=1)(np.array([[1., 9.], [2., 2.], [3., 3.], [900., 4.]]), np.ones(4))
    array([2.5, 3.5])

    References
    ----------
    Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018.
    """

    trim: float = 0.2
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("TrimmedMean", "trim", self.trim, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the values left in each column."""
        m = round_.updates.shape[0]
        trim = int(self.trim if isinstance(self.trim, int | np.integer) else self.trim * m + 1e-9)
        if 2 * trim >= m:
            raise InputError(
                f"TrimmedMean(trim={self.trim}) needs more than {2 * trim} updates, got {m}. "
                f"Lower `trim` to at most {(m - 1) // 2}, or keep more clients in the filter."
            )
        if self.weighted and not is_uniform(round_.weights):
            return weighted_trimmed_mean(round_, trim / m)
        pieces = []
        for values in sorted_columns(round_.updates):
            average = like(np.full(m - 2 * trim, 1 / (m - 2 * trim)), values)
            pieces.append(values[:, trim : m - trim] @ average)
        return join(pieces, round_.updates)


@dataclass(frozen=True)
class MeanAroundMedian(Aggregator):
    """Average, for each parameter, the m - b values nearest to its median.

    This is what the FLANDERS paper describes under the name of trimmed mean. A tie between
    a value below the median and one above it goes to the lower.

    Examples
    --------
    >>> MeanAroundMedian(num_malicious=1)(np.array([[1.], [2.], [4.], [9.]]))
    array([2.33333333])

    References
    ----------
    Xie et al., "Generalized Byzantine-tolerant SGD", 2018.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("MeanAroundMedian", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the values kept in each column."""
        m = round_.updates.shape[0]
        return mean_around_median(round_.updates, m - minority("MeanAroundMedian", self.num_malicious, m))


def is_uniform(weights: FloatVector) -> bool:
    """Tell whether all weights are the same, so that the unweighted rule serves."""
    return bool(np.all(weights == weights[0]))


def median_of_sorted(values: Array) -> Array:
    """Return the median of each row of a `(width, m)` array with sorted rows."""
    m = values.shape[1]
    middle = values[:, m // 2]
    if m % 2:
        return copied(middle)  # a view would keep the whole block alive
    return values[:, m // 2 - 1] / 2 + middle / 2


def mean_around_median(updates: Array, count: int, rows: IntVector | None = None) -> Array:
    """Average the `count` values of each column nearest to the column's median, all in `rows` if given.

    In sorted order they are a run of `count` neighbours. Sliding that run one step up swaps
    value j for value j + count, and pays while the new one is nearer to the median than the
    old, which holds up to some step and never after: so each swap can be judged by itself.
    """
    pieces = []
    for values in sorted_columns(updates, rows):
        xp = array_api_compat.array_namespace(values)
        steps = values.shape[1] - count
        middle = median_of_sorted(values)[:, None]
        pays = middle - values[:, :steps] > values[:, count:] - middle
        run = values[:, :count]
        for first in range(0, steps, count):  # swaps of different places, at most `count` at a time
            last = min(first + count, steps)
            moved = xp.where(pays[:, first:last], values[:, first + count : last + count], run[:, : last - first])
            run = xp.concat([moved, run[:, last - first :]], axis=1)
        pieces.append(run @ like(np.full(count, 1 / count), run))
    return join(pieces, updates)


def sorted_with_weights(updates: Array, weights: FloatVector) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of sorted columns as `(width, m)`, and beside each value the weight it carries."""
    source = on_host(updates)
    xp = array_api_compat.array_namespace(source)
    share = like(weights / weights.sum(), source, widest(xp))
    for columns in column_blocks(source):
        block = source[:, columns].T
        order = xp.argsort(block, axis=1, stable=True)
        carried = xp.reshape(xp.take(share, xp.reshape(order, (-1,))), order.shape)
        yield xp.take_along_axis(block, order, axis=1), carried


def weighted_trimmed_mean(round_: Round, share: float) -> Array:
    """Drop `share` of the total weight from each end of each column and average the rest by weight.

    A value on the border keeps the part of its weight that lies inside, unless that is no more
    than rounding: a huge value must not get in by an error of 1e-17. At `share=0.5` what
    is left is the weighted median; two values meeting at exactly one half are averaged.
    """
    pieces = []
    for values, weights in sorted_with_weights(round_.updates, round_.weights):
        xp = array_api_compat.array_namespace(values)
        above = xp.cumulative_sum(weights, axis=1)
        below = above - weights
        rounding = 2 * values.shape[1] * float(xp.finfo(weights.dtype).eps)
        if share >= 0.5:
            at_half = (below <= 0.5 + rounding) & (above >= 0.5 - rounding) & (weights > 0)
            inside = xp.astype(at_half, weights.dtype)
        else:
            inside = xp.clip(above, share, 1 - share) - xp.clip(below, share, 1 - share)
            inside = xp.where(inside > rounding, inside, xp.zeros_like(inside))
        pieces.append(xp.sum(values * inside, axis=1) / xp.sum(inside, axis=1))
    return join(pieces, round_.updates)
