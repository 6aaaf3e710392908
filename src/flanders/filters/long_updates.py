"""Finds updates that are far too long. `Defense` drops them in rounds for which its filter has no scores yet.

The length of an update is the distance of the client's model from the global model.
"""

from __future__ import annotations

import math

import numpy as np

from flanders.filters.camps.loud import LOUDEST
from flanders.linalg.products import squared_norms
from flanders.round import Round


def too_long(round_: Round) -> dict[int, str]:
    """Return, with reasons in words, the rows whose updates are more than 50 times as long as the median update.

    A single update of this length would dominate an average. The median leaves out updates of length zero. The
    filter `Guard` has the same limit in its first round (`LOUDEST`, the logarithm of 50).
    """
    lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
    usual = float(np.median(lengths[lengths > 0])) if lengths.any() else 0.0
    long_rows = np.flatnonzero(lengths > math.exp(LOUDEST) * usual)
    with np.errstate(over="ignore"):
        return {int(row): f"{lengths[row] / usual:.2g} times as long as the median update" for row in long_rows}
