"""Finds updates that are many times longer than training makes them. One such update would dominate the average.

`Guard` and `Camps` drop these updates. The length of an update is the distance of the client's model from the
global model.
"""

from __future__ import annotations

import math

import numpy as np

from flanders.arrays import BoolVector, FloatVector
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import ANY_LENGTH, LENGTH, Answers

LOUDEST = math.log(50.0)
"""An update is too long if it is more than fifty times as long as expected. Honest updates differ by less. This is
the logarithm of fifty."""


def loud_rows(known: Signatures, answers: Answers) -> tuple[BoolVector, FloatVector]:
    """Return which updates are too long, and for each update log(length / expected length).

    The expected length is the client's usual length. For a client without a past it is the typical length of the
    last round. In the first round it is the median length of the round. If all updates are too long, no update is
    returned: something has then changed for all clients.
    """
    own, any_ = answers.values[:, LENGTH], answers.values[:, ANY_LENGTH]
    moved = answers.moved
    of_round = float(np.median(any_[moved])) if moved.any() else 0.0
    level = of_round if known.marks is None else known.typical[0]
    longer = np.where(np.isnan(own), any_, own) - level
    loud = (longer > LOUDEST) & moved
    return (loud if not loud[moved].all() else np.zeros_like(loud)), longer
