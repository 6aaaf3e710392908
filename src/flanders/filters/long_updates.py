"""The look at the lengths of updates in rounds in which a filter has no scores yet."""

from __future__ import annotations

import math

import numpy as np

from flanders.filters.camps.loud import LOUDEST
from flanders.linalg.products import squared_norms
from flanders.round import Round


def too_long(round_: Round) -> dict[int, str]:
    """Return the rows that are so long that they would drown all others in an average, with the reason in words.

    The default filter has the same limit in its first round.
    """
    lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
    usual = float(np.median(lengths[lengths > 0])) if lengths.any() else 0.0
    loud = np.flatnonzero(lengths > math.exp(LOUDEST) * usual)
    with np.errstate(over="ignore"):
        return {int(row): f"{lengths[row] / usual:.2g} times as long as most" for row in loud}
