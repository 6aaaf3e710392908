"""Finds updates that are far too long, in rounds in which a filter has no scores yet.

`Defense` drops these updates. The length of an update is the distance of the client's model from the global model.
"""

from __future__ import annotations

import math

import numpy as np

from flanders.filters.camps.loud import LOUDEST
from flanders.linalg.products import squared_norms
from flanders.round import Round


def too_long(round_: Round) -> dict[int, str]:
    """Return the rows whose length is more than 50 times the median length, with the reason in words.

    Each of them would dominate an average. The default filter has the same limit in its first round.
    """
    lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
    usual = float(np.median(lengths[lengths > 0])) if lengths.any() else 0.0
    loud = np.flatnonzero(lengths > math.exp(LOUDEST) * usual)
    with np.errstate(over="ignore"):
        return {int(row): f"{lengths[row] / usual:.2g} times as long as most" for row in loud}
