"""Whether clients that look like themselves are of two kinds: those of one have too much in common.

A majority can add one pull to everyone's own update. Each of these still looks like its sender's; together they
have more in common than honest updates have, and are a crowd apart from the few that have not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram
from flanders.linalg.robust import robust_spread

FEWEST = 4
"""A crowd, and what it stands apart from, have at least so many members."""
APART = 2.5
"""Two parts of a group are of two kinds if their medians differ by so many times the sum of their spreads."""


@dataclass(frozen=True, eq=False)
class Company:
    """What a round's clients have in common with those of a group."""

    common: FloatVector
    """`(m,)`: mean cosine with the others of the group; NaN if the group is too small."""
    crowd: NDArray[np.bool_]
    """`(m,)`: who has as much in common with the group as its upper kind, where it is of two."""
    level: float = math.nan
    """What the upper kind has in common, in the middle of it."""
    doubt: float = math.nan
    """The standard error of that: the fewer they are, and the more they differ, the larger."""


def company(products: FloatMatrix, group: NDArray[np.bool_]) -> Company:
    """Measure what clients have in common with a group, from the inner products of all updates."""
    m, nobody = len(products), np.zeros(len(products), dtype=bool)
    if group.sum() < FEWEST:
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
    """Return the lowest value of the upper kind, if values are of two kinds; else infinity.

    They are parted where the variance between the parts is largest (Otsu's threshold).

    >>> least_of_the_upper_kind(np.array([0.1, 0.12, 0.13, 0.15, 0.6, 0.61, 0.63, 0.65]))
    0.6
    >>> least_of_the_upper_kind(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]))
    inf
    """
    x, n = np.sort(values), len(values)
    if n < 2 * FEWEST:
        return math.inf
    sizes = np.arange(FEWEST, n - FEWEST + 1)
    sums = np.cumsum(x)[sizes - 1]
    between = sizes * (n - sizes) * ((x.sum() - sums) / (n - sizes) - sums / sizes) ** 2
    low, high = np.split(x, [sizes[np.argmax(between)]])
    apart = np.median(high) - np.median(low) > APART * (robust_spread(low) + robust_spread(high))
    return float(high[0]) if apart else math.inf
