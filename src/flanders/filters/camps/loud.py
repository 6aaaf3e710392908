"""Finds updates that are too long: many times longer than expected, or much longer than the others of the round.

`Guard` and `Camps` drop these updates, since a long update counts more in an average. The length of an update is
the distance of the client's model from the global model.
"""

from __future__ import annotations

import math

import numpy as np

from flanders.arrays import BoolVector, FloatVector
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import ANY_LENGTH, LENGTH, Answers
from flanders.linalg.robust import robust_spread

LOUDEST = math.log(50.0)
"""An update is too long if it is more than fifty times as long as expected. Honest updates differ by less. This
number is the logarithm of fifty."""

LONGER = math.log(3.0)
"""An update is much longer than the others if it is more than three times as long as the median update, and also
above the limit of `SPREADS`. This number is the logarithm of three. Few honest updates are above both limits: 3 of
8,400 on digits, breast-cancer and characters, and 0 of 8,400 on Fashion-MNIST."""
SPREADS = 4.0
"""The logarithm of an update's length must also be more than this many robust standard deviations above the median
of the round. In some rounds, the lengths of honest updates vary a lot."""
FEWEST = 5
"""With fewer updates, their spread is not known well enough, and only the limit `LONGER` counts. On digits, none of
67,137 honest updates in rounds of three and four clients was above this limit."""
FEWEST_COMPARED = 3
"""With fewer updates, no update is much longer than the others: of two, nothing tells which one is unusual."""
LEAST_KNOWN = 0.25
"""The typical length of the last round is not used if fewer than `FEWEST` clients were accepted in it, and fewer
than this share of the clients of this round. A few attackers may have shifted it."""


def typical_length(known: Signatures, m: int) -> float | None:
    """Return the typical log length of the last round, for a round of m clients.

    The result is None if there was no such round, or if too few clients were accepted in it (`LEAST_KNOWN`).
    """
    return None if known.newest < max(1, min(FEWEST, LEAST_KNOWN * m)) else known.typical[0]


def loud_rows(known: Signatures, answers: Answers) -> tuple[BoolVector, FloatVector]:
    """Return which updates are too long, and for each update log(length / expected length).

    The expected length is the typical length of the last round, or the client's usual length, whichever is longer.
    So a client whose updates are usually short may send one of typical length. It does so if the global model has
    unlearnt its data, for example. If the typical length is not known, the median length of this round is used. If
    all updates are too long, no update is returned, since something has changed for all clients.
    """
    own, any_ = answers.values[:, LENGTH], answers.values[:, ANY_LENGTH]
    moved = answers.moved
    of_round = float(np.median(any_[moved])) if moved.any() else 0.0
    level = typical_length(known, len(any_))
    longer = np.fmin(own, any_) - (of_round if level is None else level)
    loud = (longer > LOUDEST) & moved
    return (loud if not loud[moved].all() else np.zeros_like(loud)), longer


def longer_than_others(
    known: Signatures, answers: Answers, rows: BoolVector, weights: FloatVector
) -> tuple[BoolVector, FloatVector]:
    """Return which of these rows are much longer than the others, and log(length / median length) of all rows.

    The median is that of `rows`. If the typical length of the last round was larger, it is used instead. Otherwise
    attackers could send short updates to make honest updates look long.

    A client with more examples takes more steps in training, and its weight is higher. So the limit for a client
    grows with its weight, if the weight is above the median.
    """
    lengths, rows = answers.values[:, ANY_LENGTH], rows & answers.moved
    if rows.sum() < FEWEST_COMPARED:
        return np.zeros_like(rows), np.zeros(len(rows))
    median, level = float(np.median(lengths[rows])), typical_length(known, len(lengths))
    spread = robust_spread(lengths[rows]) if rows.sum() >= FEWEST else 0.0
    limit = max(LONGER, SPREADS * spread)
    longer = lengths - (median if level is None else max(median, level))
    more = np.log(np.maximum(weights, 1e-300)) - math.log(max(float(np.median(weights[rows])), 1e-300))
    return rows & (longer > limit + np.maximum(more, 0.0)), longer
