"""Finds a crowd for the filter `Fingerprint`: clients whose updates are too much alike.

If most clients are attackers, they may train honestly, and then add the same vector to each of their updates. Each
of these updates still looks like its sender's earlier updates. But the updates of the attackers have higher cosines
with each other than those of honest clients. Such a group of clients is called a crowd.

The clients of a round are compared with a reference group. As a rule, these are the clients of the same round whose
fingerprint passes (see the module `questions`), without clients that send nearly the same update as another client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.linalg.products import cosines_of_gram
from flanders.linalg.robust import robust_spread

SMALLEST_CROWD = 4
"""If the reference group is divided into a crowd and other clients, each of the two parts has at least this many
clients.

The cosines of fewer clients are too few to compute their spread well enough.
"""
LEAST_GAP = 2.5
"""How far apart a crowd and the other clients must be.

A group of clients is divided into two sides, by each client's mean cosine with the rest of the group. The side with
the higher cosines is a crowd if the distance between the medians of the two sides is more than this many times the
sum of their robust standard deviations. If the cosines are evenly spread, the distance is only about 1.35 times
this sum.
"""


@dataclass(frozen=True, eq=False)
class Company:
    """The m clients of a round, compared with a reference group of clients."""

    common: FloatVector
    """`(m,)`: each client's mean cosine with the rest of the reference group; NaN if the group is too small."""
    crowd: BoolVector
    """`(m,)`: which clients belong to the crowd. Clients outside the reference group may belong to it, too."""
    level: float = math.nan
    """The median of `common` over the clients that are both in the crowd and in the reference group; NaN if there
    is no crowd."""
    doubt: float = math.nan
    """How uncertain `level` is; NaN if there is no crowd.

    For each client that is both in the crowd and in the reference group, the mean of its cosines with all other
    such clients is computed. `doubt` is the median of the standard errors of these means.
    """


def measure_company(products: FloatMatrix, group: BoolVector) -> Company:
    """Compare all clients with a reference group, and find the crowd.

    `products`, `(m, m)`, are the inner products of all updates. `group`, `(m,)`, says which clients are in the
    reference group.
    """
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
    """Divide values into two sides. Return the lowest value of the upper side, or infinity if there is no crowd.

    There is no crowd if the sides are not as far apart as `LEAST_GAP` says, or if there are fewer than
    2 * `SMALLEST_CROWD` values. The values are divided where the variance between the two sides is largest (Otsu's
    threshold).

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
