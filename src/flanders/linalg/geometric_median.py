r"""The geometric median of weighted rows: the point with the smallest weighted sum of distances to the rows.

The geometric median is a weighted average of the rows. So the search for it needs only the inner products of the m
rows, an m x m matrix, and not the rows themselves.

Let the rows be :math:`x_i` with weights :math:`w_i` that add up to 1. The search moves a point z, whose distances
to the rows are :math:`d_i = \|x_i - z\|`. A Weiszfeld step moves z to the average of the rows with weights
proportional to :math:`w_i / d_i`. The search stops when the gap is small. The gap is an upper bound of
:math:`F(z) - F(z^*)`, where :math:`F(z) = \sum_i w_i d_i` is the sum of distances, and :math:`z^*` the geometric
median. The vectors :math:`p_i = w_i (x_i - z) / d_i` have the lengths :math:`w_i`. So, by the Cauchy-Schwarz
inequality, :math:`F(y) \ge \sum_i \langle p_i, x_i - y \rangle` for every y, with equality for y = z. Therefore

.. math:: F(z) - F(z^*) \le \langle \sum_i p_i, z^* - z \rangle \le L \, \|\sum_i p_i\|

for every L that is at least :math:`\|z - z^*\|`. The right side is the gap. To find an L, let S be a set of rows
whose weights add up to :math:`W_S > 1/2`. Since :math:`F(z^*) \le F(z)`,

.. math:: \|z - z^*\| \le L = \min_S \, 2 \sum_{i \in S} w_i d_i / (2 W_S - 1).

For each n, the code takes the n rows nearest to z as the set S, if they have more than half of the weight. So a
minority of far rows does not make L large.

If z is a row :math:`x_k`, then :math:`p_k` may be any vector of length up to :math:`w_k`. If the sum of the other
:math:`p_i` is not longer than :math:`w_k`, :math:`p_k` can cancel it. The gap is then zero, and the row is the
geometric median. The gap does not include rounding errors of the inner products.

References
----------
Beck and Sabach, "Weiszfeld's method: old and new results", JOTA 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector, IntVector
from flanders.linalg.products import distances_of_gram

NOISE = 64
"""Two rows count as copies if their squared distance is at most `NOISE * e`. Here e is the sum of two rounding
errors: those of the rows' squared lengths. Real copies had squared distances of at most `12 * e`."""
TIE = 1e-12
"""Two shares of the weight count as equal if their difference is below this. Two sums of distances count as equal
if their relative difference is below this. Rounding errors are smaller."""
TINY = 1e-200
"""A length in a denominator is at least this, so that nothing is divided by zero."""
SLOW = 1 / 8
"""Newton steps begin once a Weiszfeld step leaves the gradient longer than this share of its former length."""
PATIENCE = 20
"""After this many steps without a smaller gap the search ends. More steps would only change rounding errors."""


@dataclass(frozen=True)
class Optimum:
    """A weighted average of the rows, near the geometric median."""

    coefficients: FloatVector
    """The weights of the average. They add up to 1."""
    gap: float
    """The sum of distances from this average is at most this much above the smallest possible sum."""


def geometric_median(
    products: FloatMatrix,
    weights: FloatVector,
    *,
    rounding: float = 2.0**-52,
    tolerance: float = 1e-14,
    iterations: int = 1000,
    smoothing: float = 0.0,
) -> Optimum:
    r"""Return the geometric median of rows with these inner products and weights.

    If the rows lie on a line, and exactly half of the weight is on each side of an interval, every point of the
    interval has the smallest sum of distances. The result is then the middle of the interval.

    Parameters
    ----------
    products
        The inner products of the rows, `(m, m)`.
    weights
        The weights of the rows. They are divided by their sum.
    rounding
        The relative rounding error of `products`. Rows that differ only by rounding errors are replaced by their
        weighted mean.
    tolerance
        The search stops when the gap is at most this times the median distance of the rows to the point reached.
    iterations
        The largest number of steps.
    smoothing
        If it is positive, a distance d below :math:`\nu` counts as :math:`d^2 / 2 \nu + \nu / 2`, where :math:`\nu`
        is `smoothing` times the median distance to the geometric median.
    """
    w = weights / weights.sum()
    present = np.flatnonzero(w)
    if present.size < w.size:
        products, w = products[np.ix_(present, present)], w[present]
    squared, noise = distances_of_gram(products), NOISE * rounding * np.diagonal(products)
    label = coincident(squared, noise)
    totals = np.bincount(label, w)
    share = w / totals[label]
    if totals.size < w.size:
        means = np.zeros((totals.size, w.size))
        means[label, np.arange(w.size)] = share
        products = means @ products @ means.T
        squared, noise = distances_of_gram(products), NOISE * rounding * np.diagonal(products)
    problem = Problem(products, squared, totals / totals.sum(), tolerance, iterations)
    optimum = problem.exact(noise)
    if smoothing > 0:
        optimum = problem.smoothed(optimum, smoothing)
    coefficients = np.zeros_like(weights)
    coefficients[present] = optimum.coefficients[label] * share
    return Optimum(coefficients, optimum.gap)


def coincident(squared: FloatMatrix, noise: FloatVector) -> IntVector:
    """Return a number for each row. Rows that coincide, directly or through a chain of rows, have the same number.

    Two rows coincide if their squared distance is at most the sum of their `noise`.
    """
    close = squared <= noise[:, None] + noise
    label = np.arange(noise.size)
    if np.count_nonzero(close) == noise.size:
        return label
    while True:
        lowest = np.where(close, label, noise.size).min(axis=1)
        if np.array_equal(lowest, label):
            return np.unique(label, return_inverse=True)[1]
        label = lowest


@dataclass(frozen=True)
class Place:
    """A point z of the search: a weighted average of the rows minus the best row (see `Problem`)."""

    beta: FloatVector
    """The weights of the average."""
    shift: FloatVector
    """The inner products of the rows with z."""
    squared: FloatVector
    """The squared distances of the rows to z."""


class Problem:
    """The search for the geometric median of distinct rows, with weights that add up to 1.

    The best row is the one with the smallest sum of distances to the others. It is subtracted from all rows. The
    geometric median may be close to a row. This row is then the best row. So after the subtraction the geometric
    median is close to zero, where rounding errors are small.
    """

    def __init__(
        self, products: FloatMatrix, squared: FloatMatrix, weights: FloatVector, tolerance: float, iterations: int
    ) -> None:
        self.weights, self.tolerance, self.iterations = weights, tolerance, iterations
        self.best = best_row(products, np.sqrt(squared), weights)
        self.products = around(products, self.best)
        self.norms = np.diagonal(self.products)

    def exact(self, noise: FloatVector) -> Optimum:
        """Return the geometric median. `noise` is the squared distance by which rounding can move each row."""
        w, k, products = self.weights, self.best, self.products
        line = places_on_line(products, noise + noise[k])
        if line is not None:
            return Optimum(middle(line, w), 0.0)
        pull = w / np.maximum(np.sqrt(self.norms), TINY)
        pull[k] = 0.0
        length = self.length(pull)
        if length <= w[k]:
            return Optimum(np.eye(w.size)[k], 0.0)
        # Go downhill from the best row. The sum of distances is then lower than at any row. It never grows in later
        # steps, so no later step can end at a row.
        step = pull * (1 - w[k] / length) / pull.sum()
        along = products @ step
        beta = step * line_minimum(self.norms, along, float(step @ along), w, 0.0)
        beta[k] = 1 - beta.sum()
        return self.descend(beta, 0.0)

    def smoothed(self, start: Optimum, smoothing: float) -> Optimum:
        """Return the point with the smallest smoothed sum of distances. `start` is the geometric median."""
        nu = smoothing * self.spread(np.sqrt(self.place(start.coefficients).squared), 0.0)[0]
        return self.descend(start.coefficients, nu) if nu > 0 else start

    def place(self, beta: FloatVector) -> Place:
        """Return the point with the weights `beta`. The best row is zero, so its weight does not matter."""
        shift = self.products @ beta
        squared = np.maximum(self.norms - 2 * shift + beta @ shift, 0.0)
        return Place(beta, shift, squared)

    def length(self, coefficients: FloatVector) -> float:
        """Return the length of a weighted sum of the rows."""
        return float(np.sqrt(np.maximum(coefficients @ (self.products @ coefficients), 0.0)))

    def descend(self, beta: FloatVector, nu: float) -> Optimum:
        """Take Weiszfeld steps from `beta` until the gap is small, and return the best point.

        Once a Weiszfeld step is too slow (see `SLOW`), a Newton step is taken before each further Weiszfeld step.
        Distances below `nu` are smoothed (see `geometric_median`).
        """
        at, w, floor = self.place(beta), self.weights, max(nu, TINY)
        best, waited, slope_before, newton = Optimum(beta, np.inf), 0, np.inf, False
        for _ in range(self.iterations + 1):
            distances = np.sqrt(at.squared)
            q = w / np.maximum(distances, floor)
            downhill = q - q.sum() * at.beta  # minus the gradient, the sum of all p_i, as a weighted sum of rows
            slope = self.length(downhill)
            scale, reach = self.spread(distances, nu)
            gap = slope * reach
            if gap < best.gap:
                best, waited = Optimum(at.beta, gap), 0
            if gap <= self.tolerance * scale or waited > PATIENCE:
                break
            waited += 1
            newton = newton or slope > SLOW * slope_before
            slope_before = slope
            if newton:
                q = w / np.maximum(np.sqrt(self.newton(at, q, downhill, nu).squared), floor)
            at = self.place(q / q.sum())
        return best

    def spread(self, distances: FloatVector, nu: float) -> tuple[float, float]:
        """Return the median of `distances`, and L: the geometric median is at most this far away from z."""
        order = distances.argsort()
        w, d = self.weights[order], distances[order]
        below = w.cumsum()
        half = int(below.searchsorted(0.5 + TIE))
        twice = 2 * d if nu == 0 else d + np.where(d < nu, d**2 / (2 * nu) + nu / 2, d)
        reach = (w * twice).cumsum()[half:] / (2 * below[half:] - 1)
        return float(d[half]), float(reach.min())

    def newton(self, at: Place, q: FloatVector, downhill: FloatVector, nu: float) -> Place:
        r"""Return the point with the smallest sum of distances along the direction of Newton's method.

        The Hessian is :math:`\omega I - \sum_i q_i u_i u_i^T`, with unit vectors :math:`u_i` from z towards the
        rows, :math:`q_i = w_i / d_i`, and :math:`\omega = \sum_i q_i`. Rows closer than `nu` are not in the sum.
        Since the sum has at most m terms, Newton's equation can be written as a system of m equations. Its unknowns
        are the inner products of the step with all :math:`x_i - z`.
        """
        omega, distances = q.sum(), np.sqrt(at.squared)
        root = np.where(distances > nu, np.sqrt(q / omega) / np.maximum(distances, TINY), 0.0)
        pulled = self.products @ downhill
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = -root[:, None] * (self.products - at.shift[:, None] - at.shift + at.beta @ at.shift) * root
            np.fill_diagonal(matrix, np.where(root > 0, 1 - q / omega, 1.0))
            try:
                turn = root * np.linalg.solve(matrix, root * (pulled - at.beta @ pulled))
            except np.linalg.LinAlgError:
                turn = np.zeros_like(q)
            steps = (downhill + turn - turn.sum() * at.beta) / omega, downhill / omega
        for step in steps if np.isfinite(turn).all() else steps[1:]:
            along = self.products @ step
            length = float(step @ along)
            if length > 0 and step @ pulled > 0:
                t = line_minimum(at.squared, along - at.beta @ along, length, self.weights, nu)
                return self.place(at.beta + t * step)
        return at


def line_minimum(squared: FloatVector, along: FloatVector, length: float, w: FloatVector, nu: float) -> float:
    """Return the factor of a step. The step times this factor ends near the smallest sum of distances on its line.

    `squared` has the squared distances of the rows from the start of the step. `along` has the inner products of
    the step with the vectors from its start to the rows. `length` is the squared length of the step, and `w` has
    the weights of the rows. Distances below `nu` are smoothed (see `geometric_median`).
    """

    def slope(t: float) -> float:
        distances = np.sqrt(np.maximum(squared - 2 * t * along + t * t * length, 0.0))
        rising = float(w @ ((t * length - along) / np.maximum(distances, max(nu, TINY))))
        return rising if nu > 0 else rising + float(np.sqrt(length) * w[distances == 0].sum())

    slope_at_start, low, high, t = slope(0.0), 0.0, np.inf, 1.0
    for _ in range(100):
        slope_at_t = slope(t)
        if abs(slope_at_t) <= 0.1 * abs(slope_at_start):
            break
        low, high = (t, high) if slope_at_t < 0 else (low, t)
        t = 2 * t if high == np.inf else (low + high) / 2
    return t


def best_row(products: FloatMatrix, distances: FloatMatrix, weights: FloatVector) -> int:
    """Return the row with the smallest weighted sum of distances to the others."""
    sums = distances @ weights
    tied = np.flatnonzero(sums <= sums.min() * (1 + TIE))
    if tied.size == 1:
        return int(tied[0])
    # Several rows are tied: rounding errors of distances to far rows x hide which sum is smaller. So compare each
    # tied row y with the first tied row b, by the sum of all |x - y| - |x - b|. After b is subtracted from all
    # rows, this difference is (|y|^2 - 2 <x, y>) / (|x - y| + |x - b|).
    b = tied[0]
    less = around(products, b)
    more = (np.diagonal(less) - 2 * less) / np.maximum(distances + distances[:, b, None], TINY)
    return int(tied[(weights @ more)[tied].argmin()])


def around(products: FloatMatrix, k: int) -> FloatMatrix:
    """Return the inner products of the rows after row k is subtracted from all of them."""
    moved: FloatMatrix = products - products[:, k, None] - products[k] + products[k, k]
    moved[:, k] = moved[k, :] = 0.0
    return moved


def places_on_line(products: FloatMatrix, noise: FloatVector) -> FloatVector | None:
    """Return the position of each row on the line through zero and the longest row, or None if a row is not on it.

    A row is on the line if its squared distance from the line is at most its `noise`.
    """
    squared = np.diagonal(products)
    far = int(squared.argmax())
    along = products[far] / max(np.sqrt(squared[far]), TINY)
    return along if np.all(squared - along**2 <= noise) else None


def middle(line: FloatVector, weights: FloatVector) -> FloatVector:
    """Return the weights with which the average of points on a line is their weighted median.

    If all points of an interval are medians, the average is the middle of the interval.
    """
    order = line.argsort()
    below = weights[order].cumsum()
    k = int(below.searchsorted(0.5 - TIE))
    halves = order[k : k + 1] if below[k] > 0.5 + TIE else order[k : k + 2]
    coefficients = np.zeros_like(weights)
    coefficients[halves] = 1 / halves.size
    return coefficients
