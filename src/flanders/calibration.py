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

from flanders.state import saveable
from flanders.types import FloatVector, IntVector, resolve_count

MEMORY = 5
"""Rounds whose accepted scores are kept as reference."""
PACE, LARGEST_FALL, LARGEST_RISE = 0.3, -0.05, 0.15
"""How fast and how far the typical log score may move in a round: attackers in the majority cannot drag it."""
LEAST_SPREAD = 1e-3
"""Log scores closer to each other than this are the same."""
NORMAL = 1.4826
"""How many median deviations a normal distribution's standard deviation is."""


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


def robust_spread(values: FloatVector, middle: float | None = None) -> float:
    """Return the median deviation from the median, or from another middle, scaled to a standard deviation."""
    around = np.median(values) if middle is None else middle
    return NORMAL * float(np.median(np.abs(values - around)))


def local_false_discovery_rate(p: FloatVector) -> FloatVector:
    """Return, for each p-value, the probability that it is an honest client's: pi0 / f(p), falling in evidence.

    f is the decreasing density that fits the p-values best (Grenander's estimator: the slopes of
    the least concave majorant of their distribution function), taken together with as many evenly spread
    ones: without them the estimate sees attackers in every handful of small p-values. pi0 is Storey's share of
    honest clients.

    Examples
    --------
    >>> local_false_discovery_rate(np.array([0.001] * 5 + [0.2, 0.4, 0.6, 0.8, 0.9])).round(3)
    array([0.004, 0.004, 0.004, 0.004, 0.004, 1. , 1. , 1. , 1. , 1. ])

    References
    ----------
    Efron, "Large-scale inference", 2010. Strimmer, "A unified approach to false discovery rate
    estimation", BMC Bioinformatics 2008. Storey, JRSS B 2002.
    """
    m = p.size
    honest_share = min(1.0, (1.0 + float(np.count_nonzero(p > 0.5))) / (0.5 * m))
    knots, counts = np.unique(np.concatenate([p, (np.arange(m) + 0.5) / m]), return_counts=True)
    slopes: list[tuple[float, float]] = []  # (width, mass), merged until the density falls
    for width, mass in zip(np.diff(knots, prepend=0.0), counts / (2 * m), strict=True):
        slopes.append((float(width), float(mass)))
        while len(slopes) > 1 and slopes[-1][1] * slopes[-2][0] >= slopes[-2][1] * slopes[-1][0]:
            (w1, m1), (w2, m2) = slopes.pop(), slopes.pop()
            slopes.append((w1 + w2, m1 + m2))
    ends = np.cumsum([width for width, _ in slopes])
    density = np.array([mass / width for width, mass in slopes])
    place = np.minimum(np.searchsorted(ends, p * (1 - 1e-12)), len(slopes) - 1)
    return np.minimum(1.0, (honest_share + 1) / 2 / density[place])
