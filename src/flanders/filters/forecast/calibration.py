"""From scores to the probability that a client is malicious, and to the clients that are kept.

The paper uses a threshold for probabilities but does not say how to compute them. Here they are calibrated on the
server's own past: the scores of clients that it accepted in recent rounds. The logarithms of these scores are close
to normal. Their median and median deviation give each client a p-value, and describe the scores even if the filter
has cut off their tail. A client's probability depends on how many more small p-values the round has than honest
clients would produce (the local false discovery rate).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatVector, IntVector
from flanders.checks import InputError, check_number, resolve_count
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.linalg.robust import local_false_discovery_rate, robust_spread
from flanders.state import saveable

MIN_HONEST = 0.2
"""The default for the least share of honest clients. In the paper at most four of five clients are malicious."""
ROUNDS_REMEMBERED = 5
"""Probabilities are calibrated on the clients accepted in this many rounds."""
PACE = 0.3
"""In each round the typical log score moves by this share towards the value that the round shows."""
LARGEST_FALL, LARGEST_RISE = -0.05, 0.15
"""The most that the typical log score changes in a round, so that a majority of attackers cannot move it far."""
LEAST_SPREAD = 1e-3
"""The smallest spread of log scores between clients. It prevents a division by zero."""


@saveable
@dataclass(frozen=True, eq=False)
class Calibration:
    """What is known about the scores of accepted clients."""

    residuals: tuple[FloatVector, ...] = ()
    """The log scores of the clients accepted in the last rounds, relative to the typical log score of the round."""
    location: float | None = None
    """The typical log score of the last round. None before the first."""


def log_scores(scores: FloatVector) -> FloatVector:
    """Return logarithms that stay finite for a score of zero or infinity."""
    return np.log(np.clip(scores, 1e-300, 1e300))


def typical_log_score(calibration: Calibration, scores: FloatVector, min_honest: float) -> float:
    """Return the round's typical log score. It is measured on the `min_honest` share with the lowest scores."""
    honest = max(1, resolve_count(float(min_honest), scores.size))
    now = float(np.median(np.sort(log_scores(scores))[:honest]))
    if calibration.location is None:
        return now
    step = PACE * (now - calibration.location)
    return calibration.location + float(np.clip(step, LARGEST_FALL, LARGEST_RISE))


def calibrated_probabilities(
    calibration: Calibration, scores: FloatVector, min_honest: float
) -> FloatVector | None:
    """Return each client's probability of being malicious; None while there is no reference yet."""
    if not calibration.residuals:
        return None
    reference = np.concatenate(calibration.residuals)
    middle = float(np.median(reference))
    spread = max(robust_spread(reference, middle), LEAST_SPREAD)
    z = (log_scores(scores) - typical_log_score(calibration, scores, min_honest) - middle) / spread
    p = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in z])
    return 1.0 - local_false_discovery_rate(np.maximum(p, 1e-300))


def calibrate(calibration: Calibration, scores: FloatVector, kept: IntVector, min_honest: float) -> Calibration:
    """Return the calibration with this round's accepted scores in it."""
    location = typical_log_score(calibration, scores, min_honest)
    new = log_scores(scores)[kept] - location
    residuals = (*calibration.residuals, new) if new.size else calibration.residuals
    return Calibration(residuals[-ROUNDS_REMEMBERED:], location)


def check_keep_or_threshold(caller: str, keep: float | None, threshold: float | None, min_honest: float) -> None:
    """Complain unless exactly one of `keep` and `threshold` is given, with numbers that can be used."""
    check_keep(caller, keep)
    if (keep is None) == (threshold is None):
        raise InputError(
            f"{caller} takes either `keep` (how many clients, or what fraction) or `threshold` (the largest "
            f"probability of being malicious). Got keep={keep!r}, threshold={threshold!r}. If you do not know how "
            "many clients are malicious, use Guard()."
        )
    if threshold is not None:
        check_number(caller, "threshold", threshold, 0, 1)
    elif min_honest != MIN_HONEST:
        raise InputError(f"The `min_honest` parameter of {caller} is used only with `threshold`. Leave it out.")
    check_number(caller, "min_honest", min_honest, 0, 1)


def select_by_keep_or_threshold(scores: Scores, keep: float | None, threshold: float | None) -> IntVector:
    """Return the rows of the `keep` lowest scores, or of the clients within the `threshold`."""
    if keep is not None:
        return lowest(scores, keep)
    if scores.probabilities is None or threshold is None:
        return np.arange(len(scores.clients))
    return np.flatnonzero(scores.probabilities <= threshold)
