"""Finds a crowd for the filter `Fingerprint`: a group of clients that have too much in common with each other.

A majority of attackers may train honestly, and then add the same vector to each of their updates. Each update still
looks like its sender's earlier ones. But these updates have more in common than honest updates have. So they form a
group that is apart from the other clients. This group is called a crowd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram
from flanders.linalg.robust import robust_spread

SMALLEST_CROWD = 4
"""A crowd has at least this many clients, and there are at least this many other clients."""
LEAST_GAP = 2.5
"""Two parts are two kinds of clients if their medians differ by more than this many times the sum of their
spreads."""


@dataclass(frozen=True, eq=False)
class Company:
    """What the m clients of a round have in common with the clients of a group."""

    common: FloatVector
    """`(m,)`: each client's mean cosine with the others of the group; NaN if the group is too small."""
    crowd: BoolVector
    """`(m,)`: which clients belong to the crowd. It is empty unless there are two kinds of clients."""
    level: float = math.nan
    """The median of `common` in the crowd; NaN if there is no crowd."""
    doubt: float = math.nan
    """The standard error of `level`. It is large if the crowd is small or its cosines vary."""


def measure_company(products: FloatMatrix, group: BoolVector) -> Company:
    """Return what all clients have in common with a group. `products` are the inner products of all updates."""
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
    """Return the lowest value of the upper part if values form two clearly different parts, else infinity.

    The values are cut where the variance between the two parts is largest (Otsu's threshold).

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
