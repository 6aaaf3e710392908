"""Who was caught and who was wronged: precision, recall and false-positive rate of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Detection:
    """Clients counted over all rounds, as in the paper's appendix; a dropped client counts as called malicious."""

    caught: int
    """Malicious and dropped, tp."""
    wronged: int
    """Honest and dropped, fp."""
    missed: int
    """Malicious and kept, fn."""
    passed: int
    """Honest and kept, tn."""

    @property
    def precision(self) -> float:
        """The ratio tp / (tp + fp): how many of the dropped were malicious; NaN if nobody was dropped."""
        return _ratio(self.caught, self.caught + self.wronged)

    @property
    def recall(self) -> float:
        """The ratio tp / (tp + fn): how many of the malicious were dropped; NaN if nobody was malicious."""
        return _ratio(self.caught, self.caught + self.missed)

    @property
    def false_positive_rate(self) -> float:
        """The ratio fp / (fp + tn): how many of the honest were dropped; NaN if nobody was honest."""
        return _ratio(self.wronged, self.wronged + self.passed)


def count(present: NDArray[Any], malicious: NDArray[Any], kept: NDArray[Any]) -> Detection:
    """Count the clients of all rounds; the arrays are boolean and of one shape.

    Examples
    --------
    >>> yes = np.ones(4, dtype=bool)
    >>> found = count(yes, malicious=np.array([1, 1, 0, 0], dtype=bool), kept=np.array([0, 1, 0, 1], dtype=bool))
    >>> found, found.precision, found.recall
    (Detection(caught=1, wronged=1, missed=1, passed=1), 0.5, 0.5)
    """
    bad, good = present & malicious, present & ~malicious
    return Detection(
        caught=int(np.count_nonzero(bad & ~kept)),
        wronged=int(np.count_nonzero(good & ~kept)),
        missed=int(np.count_nonzero(bad & kept)),
        passed=int(np.count_nonzero(good & kept)),
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan
