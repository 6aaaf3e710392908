"""Turns the scores of `Flanders` into probabilities of being malicious, and selects the clients to keep.

The FLANDERS paper uses a threshold for probabilities but does not say how to compute the probabilities. Here they
are computed in two steps, from the scores of clients that were accepted (kept) in recent rounds:

- Each new score gets a p-value: the probability that an honest client has at least such a high score. The
  logarithms of the accepted clients' scores are close to normally distributed, so the p-value follows from their
  median and their median deviation. The filter drops the highest scores, but this hardly changes these two numbers.
- The p-values of the whole round give the probability that a client is malicious. In a round of honest clients, a
  certain number of p-values would be near that of the client. If many more are near it, the probability is high. It
  is one minus the local false discovery rate.
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
"""The default for the smallest share of honest clients in a round. In the paper at most 80% are malicious."""
ROUNDS_REMEMBERED = 5
"""Probabilities are computed from the scores of the clients accepted in this many of the last rounds. Older scores
may no longer be usual."""
PACE = 0.3
"""Each round has a measured log score; see `typical_log_score`. The typical log score moves towards it by this
share of the difference. So a single round changes the typical log score only a little."""
LARGEST_FALL, LARGEST_RISE = -0.05, 0.15
"""By how much the typical log score may fall and rise in a round. So a majority of attackers cannot move it far."""
LEAST_SPREAD = 1e-3
"""The smallest standard deviation that is assumed for log scores. It prevents a division by zero."""


@saveable
@dataclass(frozen=True, eq=False)
class Calibration:
    """What is remembered of the scores of accepted clients."""

    residuals: tuple[FloatVector, ...] = ()
    """For each of the last rounds: the log scores of the accepted clients, minus the typical log score of the
    round."""
    location: float | None = None
    """The typical log score of the last round; None before the first round."""


def log_scores(scores: FloatVector) -> FloatVector:
    """Return the logarithms of scores. They are finite even if a score is zero or infinite."""
    return np.log(np.clip(scores, 1e-300, 1e300))


def typical_log_score(calibration: Calibration, scores: FloatVector, min_honest: float) -> float:
    """Return the round's typical log score.

    Take the clients with the lowest scores, as many as the share `min_honest` of the round. The median of their log
    scores is the measured log score of the round. In the first round it is also the typical log score. From then
    on, the typical log score moves only slowly towards the measured one; see `PACE`.
    """
    honest = max(1, resolve_count(float(min_honest), scores.size))
    measured = float(np.median(np.sort(log_scores(scores))[:honest]))
    if calibration.location is None:
        return measured
    step = PACE * (measured - calibration.location)
    return calibration.location + float(np.clip(step, LARGEST_FALL, LARGEST_RISE))


def calibrated_probabilities(
    calibration: Calibration, scores: FloatVector, min_honest: float
) -> FloatVector | None:
    """Return each client's probability of being malicious, or None if no accepted scores are remembered yet."""
    if not calibration.residuals:
        return None
    reference = np.concatenate(calibration.residuals)
    middle = float(np.median(reference))
    spread = max(robust_spread(reference, middle), LEAST_SPREAD)
    z = (log_scores(scores) - typical_log_score(calibration, scores, min_honest) - middle) / spread
    p = np.array([0.5 * math.erfc(value / math.sqrt(2)) for value in z])
    return 1.0 - local_false_discovery_rate(np.maximum(p, 1e-300))


def calibrate(calibration: Calibration, scores: FloatVector, kept: IntVector, min_honest: float) -> Calibration:
    """Return the calibration after a round in which the rows `kept` were accepted."""
    location = typical_log_score(calibration, scores, min_honest)
    new = log_scores(scores)[kept] - location
    residuals = (*calibration.residuals, new) if new.size else calibration.residuals
    return Calibration(residuals[-ROUNDS_REMEMBERED:], location)


def check_keep_or_threshold(caller: str, keep: float | None, threshold: float | None, min_honest: float) -> None:
    """Raise an error unless exactly one of `keep` and `threshold` is given, and all numbers are valid."""
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
    """Return the rows with the `keep` lowest scores, or with probabilities of at most `threshold`.

    If there are no probabilities yet, all rows are returned.
    """
    if keep is not None:
        return lowest(scores, keep)
    if scores.probabilities is None or threshold is None:
        return np.arange(len(scores.clients))
    return np.flatnonzero(scores.probabilities <= threshold)
