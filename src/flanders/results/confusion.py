"""Measures of how well a filter found the malicious clients.

The measures are precision, recall, F1, the false-positive rate, and the area under the ROC curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flanders.arrays import FloatVector


@dataclass(frozen=True)
class Confusion:
    """The numbers of malicious and honest clients that were kept and not kept.

    A client that is not kept counts as a positive, as in the appendix of the FLANDERS paper.

    Examples
    --------
    >>> counts = Confusion.of(malicious=[True, True, False, False], kept=[False, True, False, True])
    >>> counts
    Confusion(caught=1, wronged=1, missed=1, passed=1)
    >>> (counts + counts).recall
    0.5
    """

    caught: int = 0
    """Malicious clients that were not kept: true positives, tp."""
    wronged: int = 0
    """Honest clients that were not kept: false positives, fp."""
    missed: int = 0
    """Malicious clients that were kept: false negatives, fn."""
    passed: int = 0
    """Honest clients that were kept: true negatives, tn."""

    @classmethod
    def of(cls, malicious: ArrayLike, kept: ArrayLike) -> Confusion:
        """Count clients. Both arrays have one value for each client."""
        bad, in_ = np.asarray(malicious, dtype=bool), np.asarray(kept, dtype=bool)
        return cls(*(int(np.count_nonzero(who)) for who in (bad & ~in_, ~bad & ~in_, bad & in_, ~bad & in_)))

    def __add__(self, other: Confusion) -> Confusion:
        return Confusion(
            self.caught + other.caught,
            self.wronged + other.wronged,
            self.missed + other.missed,
            self.passed + other.passed,
        )

    @property
    def precision(self) -> float:
        """The share of malicious clients among the clients that were not kept, tp / (tp + fp).

        It is NaN if all clients were kept.
        """
        return _share(self.caught, self.wronged)

    @property
    def recall(self) -> float:
        """The share of the malicious clients that were not kept, tp / (tp + fn).

        It is NaN if no client was malicious.
        """
        return _share(self.caught, self.missed)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 2 tp / (2 tp + fp + fn).

        It is NaN if all clients were honest and were kept.
        """
        return _share(2 * self.caught, self.wronged + self.missed)

    @property
    def false_positive_rate(self) -> float:
        """The share of the honest clients that were not kept, fp / (fp + tn).

        It is NaN if no client was honest.
        """
        return _share(self.wronged, self.passed)


def area_under_curve(rounds: Iterable[tuple[NDArray[np.bool_], FloatVector]]) -> float:
    """Return the area under the ROC curve: how often a malicious client has a higher score than an honest one.

    Each round is given as two arrays: which clients are malicious, and the scores of the clients. Only clients of
    the same round are compared, since scores of different rounds are not comparable. A pair of clients with equal
    scores counts half. Clients without a score (NaN) are left out. The result is NaN if there is no pair.

    Examples
    --------
    >>> area_under_curve([(np.array([True, False, False]), np.array([2.0, 1.0, 2.0]))])
    0.75
    """
    wins, pairs = 0.0, 0
    for malicious, scores in rounds:
        judged = ~np.isnan(scores)
        bad = malicious[judged]
        _, group, size = np.unique(scores[judged], return_inverse=True, return_counts=True)
        rank = (np.cumsum(size) - (size - 1) / 2)[group]  # from 1; equal scores share their mean rank
        b = int(bad.sum())  # the number of malicious clients
        # The rank of a malicious client counts this client and all clients with a lower score. The malicious
        # clients alone contribute 1 + 2 + ... + b to the sum of these ranks. The rest counts the honest clients.
        wins += float(rank[bad].sum()) - b * (b + 1) / 2
        pairs += b * (len(bad) - b)
    return wins / pairs if pairs else math.nan


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else math.nan
