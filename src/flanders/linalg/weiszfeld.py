"""Weiszfeld's algorithm for the geometric median, with a few steps on the rows themselves.

`flanders.linalg.geometric_median` finds the exact geometric median, from the inner products of the rows.
"""

from __future__ import annotations

import numpy as np

from flanders.arrays import Array, FloatVector
from flanders.linalg.geometric_median import TIE, TINY
from flanders.linalg.products import combine, rough_squared_norms


def weiszfeld(matrix: Array, start: Array, weights: FloatVector, steps: int, smoothing: float) -> Array:
    r"""Return the point that Weiszfeld's algorithm reaches from `start` after this number of steps.

    Each step moves to a weighted average of the rows of the matrix. In this average, row i has a weight
    proportional to :math:`w_i / \max(\nu, d_i)`, where :math:`w_i` is its entry in `weights`, :math:`d_i` is its
    distance to the point before the step, and :math:`\nu` is `smoothing` times the weighted median of the
    :math:`d_i`.
    """
    z = start
    for _ in range(steps):
        distances = np.sqrt(rough_squared_norms(matrix, z))
        pull = weights / np.maximum(distances, max(smoothing * weighted_median(distances, weights), TINY))
        z = combine(pull / pull.sum(), matrix)
    return z


def weighted_median(values: FloatVector, weights: FloatVector) -> float:
    """Return the weighted median: the smallest value such that the weights up to it add up to more than a half."""
    order = values.argsort()
    return float(values[order[weights[order].cumsum().searchsorted(0.5 + TIE)]])
