"""Updates that are many times longer than training makes them. They would drown all others in an average."""

from __future__ import annotations

import math

import numpy as np

from flanders.arrays import BoolVector, FloatVector
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import ANY_LENGTH, LENGTH, Answers

LOUDEST = math.log(50.0)
"""No client needs to send fifty times as much as it usually does, or as most do: steps differ by less."""


def loud_rows(known: Signatures, answers: Answers) -> tuple[BoolVector, FloatVector]:
    """Return which updates are too long, and by how much each is longer than expected, as a logarithm.

    A client is compared with its own usual length. A client without a past is compared with the typical length of
    the last round and, in the first round, with the median length of the round. If everybody is too long, something
    has changed for all, and nobody is returned.
    """
    own, any_ = answers.values[:, LENGTH], answers.values[:, ANY_LENGTH]
    moved = answers.moved
    of_round = float(np.median(any_[moved])) if moved.any() else 0.0
    level = of_round if known.marks is None else known.typical[0]
    longer = np.where(np.isnan(own), any_, own) - level
    loud = (longer > LOUDEST) & moved
    return (loud if not loud[moved].all() else np.zeros_like(loud)), longer
