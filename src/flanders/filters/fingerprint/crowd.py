"""Finds a crowd: clients whose updates look like their own, but have too much in common with each other.

A majority of attackers can add the same pull to each client's own update. Each of these updates still looks like
its sender's. But together they have more in common than honest updates have. They form a crowd apart from the few
others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram
from flanders.linalg.robust import robust_spread

SMALLEST_CROWD = 4
"""A crowd has at least this many clients, and so have the other clients of the group."""
LEAST_GAP = 2.5
"""Two parts of a group count as two kinds if their medians differ by this many times the sum of their spreads."""


@dataclass(frozen=True, eq=False)
class Company:
    """What the clients of a round have in common with the clients of a group."""

    common: FloatVector
    """`(m,)`: each client's mean cosine with the others of the group; NaN if the group is too small."""
    crowd: BoolVector
    """`(m,)`: which clients belong to the crowd: of two kinds of clients, those with more in common."""
    level: float = math.nan
    """How much the crowd has in common: its median."""
    doubt: float = math.nan
    """The standard error of the level. It is large for small crowds and for crowds that differ."""


def measure_company(products: FloatMatrix, group: BoolVector) -> Company:
    """Measure what clients have in common with a group, from the inner products of all updates."""
    m, nobody = len(products), np.zeros(len(products), dtype=bool)
    if group.sum() < SMALLEST_CROWD:
        return Company(np.full(m, np.nan), nobody)
    cosines, others = cosines_of_gram(products), group & ~np.eye(m, dtype=bool)
    common = np.mean(cosines, axis=1, where=others)
    crowd = common >= least_of_the_upper_kind(common[group])
    if not crowd.any():
        return Company(common, nobody)
    upper = crowd & group
    scatter = np.std(cosines[upper], axis=1, where=(others & upper)[upper], ddof=1)
    doubt = float(np.median(scatter)) / math.sqrt(upper.sum() - 1)
    return Company(common, crowd, float(np.median(common[upper])), doubt)


def least_of_the_upper_kind(values: FloatVector) -> float:
    """Return the lowest value of the upper kind if there are two kinds of values, else infinity.

    The values are split where the variance between the two parts is largest (Otsu's threshold).

    >>> least_of_the_upper_kind(np.array([0.1, 0.12, 0.13, 0.15, 0.6, 0.61, 0.63, 0.65]))
    0.6
    >>> least_of_the_upper_kind(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]))
    inf
    """
    x, n = np.sort(values), len(values)
    if n < 2 * SMALLEST_CROWD:
        return math.inf
    sizes = np.arange(SMALLEST_CROWD, n - SMALLEST_CROWD + 1)
    sums = np.cumsum(x)[sizes - 1]
    between = sizes * (n - sizes) * ((x.sum() - sums) / (n - sizes) - sums / sizes) ** 2
    low, high = np.split(x, [sizes[np.argmax(between)]])
    apart = np.median(high) - np.median(low) > LEAST_GAP * (robust_spread(low) + robust_spread(high))
    return float(high[0]) if apart else math.inf
