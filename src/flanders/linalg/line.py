"""Distances from fixed rows to a point that moves along a line.

The rows are honest updates. The point is what malicious clients send. Its position on the line is the strength of
the attack. Attacks use the distances to find the largest strength that a defence does not detect. The rows are read
only once, no matter how many strengths an attack tries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, on_host, to_numpy
from flanders.linalg.blocks import centred_block, column_blocks
from flanders.linalg.products import distances_of_gram


@dataclass(frozen=True, eq=False)
class Line:
    r"""Squared distances between n fixed rows r_i and a point x(t) = a + t v, which moves along a line as t grows.

    .. math:: \|x(t) - r_i\|^2 = \|a - r_i\|^2 + 2 t \langle a - r_i, v \rangle + t^2 \|v\|^2

    `measure` reads the rows once. It computes the coefficients of this formula, and the distances between the rows.
    All other methods need at most O(n^2) steps on the CPU.

    Examples
    --------
    >>> line = Line.measure(np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros(2), np.array([1.0, 0.0]))
    >>> line.to_rows(3.0)
    array([ 4., 13.])
    >>> line.with_copies(3.0, 2)
    array([[ 0.,  5.,  4.,  4.],
           [ 5.,  0., 13., 13.],
           [ 4., 13.,  0.,  0.],
           [ 4., 13.,  0.,  0.]])
    """

    between: FloatMatrix
    """Squared distances between the rows, `(n, n)`."""
    constant: FloatVector
    """|a - r_i|^2, `(n,)`."""
    slope: FloatVector
    """<a - r_i, v>, `(n,)`."""
    speed: float
    """|v|^2."""

    @classmethod
    def measure(cls, rows: Array, start: Array, direction: Array) -> Line:
        """Return the `Line` from the point `start` along the vector `direction`."""
        rows, start, direction = on_host(rows), on_host(start), on_host(direction)
        xp = array_api_compat.array_namespace(rows)
        products: Array = 0.0
        slope: Array = 0.0
        speed: Array = 0.0
        for columns in column_blocks(rows):
            block = centred_block(rows, start, columns)
            along = xp.astype(direction[columns], block.dtype, copy=False)
            products = products + block @ block.T
            slope = slope - block @ along
            speed = speed + xp.sum(along * along)
        gram = np.asarray(to_numpy(products), dtype=np.float64)
        gram = (gram + gram.T) / 2
        return cls(
            distances_of_gram(gram),
            np.diagonal(gram).copy(),
            np.asarray(to_numpy(slope), dtype=np.float64),
            float(speed),
        )

    def to_rows(self, t: float) -> FloatVector:
        """Return the squared distances from x(t) to the rows, `(n,)`."""
        return np.maximum(self.constant + 2 * t * self.slope + t * t * self.speed, 0.0)

    def with_copies(self, t: float, count: int) -> FloatMatrix:
        """Return the squared distances between all rows of a round: the fixed rows and `count` copies of x(t).

        The copies come last. So an aggregator that takes the first of several equal rows decides against the
        attacker.
        """
        n = self.constant.size
        distances = np.zeros((n + count, n + count))
        distances[:n, :n] = self.between
        distances[:n, n:] = self.to_rows(t)[:, None]
        distances[n:, :n] = distances[:n, n:].T
        return distances

    def longest_within(self, squared_radius: float) -> float:
        """Return the largest t >= 0 at which every squared distance to a row is at most `squared_radius`.

        The caller must make sure that the condition holds at t = 0.
        """
        return min(
            largest_root(self.speed, float(b), float(c) - squared_radius)
            for b, c in zip(self.slope, self.constant, strict=True)
        )

    def longest_within_sum(self, squared_radius: float) -> float:
        """Return the largest t >= 0 at which the sum of squared distances to all rows is at most `squared_radius`.

        The caller must make sure that the condition holds at t = 0.
        """
        n = self.constant.size
        return largest_root(n * self.speed, float(self.slope.sum()), float(self.constant.sum()) - squared_radius)


def largest_root(a: float, b: float, c: float) -> float:
    """Return the largest t >= 0 with a t^2 + 2 b t + c <= 0, where a is not negative.

    If there is no such t, return the t >= 0 with the smallest a t^2 + 2 b t + c. If a is 0, return 0.

    Examples
    --------
    >>> largest_root(1.0, 1.0, -8.0)
    2.0
    """
    if a <= 0:
        return 0.0
    root = math.sqrt(max(b * b - a * c, 0.0))
    # Both formulas give the same t. The one that adds two numbers of the same sign has the smaller rounding error.
    t = -c / (b + root) if b > 0 else (root - b) / a
    return max(t, 0.0)
