"""From raw scores to the probability that a client is malicious.

The paper names a probability threshold and leaves the probabilities open. Here the reference is the
server's own past: the scores of clients it accepted in recent rounds. Their logarithms are close to normal, and
median and median deviation describe them even when the filter has cut off their tail; they give each client a
p-value. Its probability follows from how many more small p-values the round has than honest clients would
produce (the local false discovery rate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatVector, IntVector
from flanders.checks import resolve_count
from flanders.linalg.robust import local_false_discovery_rate, robust_spread
from flanders.state import saveable

MEMORY = 5
"""Rounds whose accepted scores are kept as reference."""
PACE, LARGEST_FALL, LARGEST_RISE = 0.3, -0.05, 0.15
"""How fast and how far the typical log score may move in a round: attackers in the majority cannot drag it."""
LEAST_SPREAD = 1e-3
"""Log scores closer to each other than this are the same."""


@saveable
@dataclass(frozen=True, eq=False)
class Calibration:
    """Log scores of accepted clients, each relative to its round's typical one."""

    residuals: tuple[FloatVector, ...] = ()
    location: float | None = None


def log_scores(scores: FloatVector) -> FloatVector:
    """Return logarithms that stay finite for a score of zero or infinity."""
    return np.log(np.clip(scores, 1e-300, 1e300))


def typical(calibration: Calibration, scores: FloatVector, min_honest: float) -> float:
    """Return the round's typical log score, judged by the lowest `min_honest` share of clients."""
    honest = max(1, resolve_count(float(min_honest), scores.size))
    now = float(np.median(np.sort(log_scores(scores))[:honest]))
    if calibration.location is None:
        return now
    step = PACE * (now - calibration.location)
    return calibration.location + float(np.clip(step, LARGEST_FALL, LARGEST_RISE))


def probabilities(calibration: Calibration, scores: FloatVector, min_honest: float) -> FloatVector | None:
    """Return each client's probability of being malicious; None while there is no reference yet."""
    if not calibration.residuals:
        return None
    reference = np.concatenate(calibration.residuals)
    middle = float(np.median(reference))
    spread = max(robust_spread(reference, middle), LEAST_SPREAD)
    z = (log_scores(scores) - typical(calibration, scores, min_honest) - middle) / spread
    p = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in z])
    return 1.0 - local_false_discovery_rate(np.maximum(p, 1e-300))


def updated(calibration: Calibration, scores: FloatVector, kept: IntVector, min_honest: float) -> Calibration:
    """Return the calibration with this round's accepted scores in it."""
    location = typical(calibration, scores, min_honest)
    new = log_scores(scores)[kept] - location
    residuals = (*calibration.residuals, new) if new.size else calibration.residuals
    return Calibration(residuals[-MEMORY:], location)
