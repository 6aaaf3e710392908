"""The filter FLDetector with a delay of one round.

Such a delay would explain the values that the FLANDERS paper reports for FLDetector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.checks import InputError
from flanders.filters.filter import Scores
from flanders.filters.fldetector import FLDetector, FLDetectorState
from flanders.round import Round


@dataclass(frozen=True)
class FLDetectorLagged(FLDetector):
    r"""FLDetector with a delay: it judges the clients of a round only by earlier rounds.

    .. math:: \text{score}_c^{(t)} = \text{the mean of the distances of } c \text{ in rounds before } t

    FLDetector predicts the model of each client. The distance is the distance of the model to this prediction. If
    the malicious clients change from round to round, this filter is no better than a random choice. The FLANDERS
    paper reports exactly this result for FLDetector: precision and recall equal the share of malicious clients.
    This part of the paper's code is not public. So the delay is only our guess. The filter `FLDetector` of this
    package also uses the round that it judges.

    Examples
    --------
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> defense = Defense(FLDetectorLagged(keep=8), seed=0)
    >>> for t in range(4):
    ...     outcome = defense(rng.normal(size=(10, 50)))
    >>> len(outcome.kept)
    8

    References
    ----------
    Zhang et al., "FLDetector: defending federated learning against model poisoning attacks via
    detecting malicious clients", KDD 2022.
    """

    keep: float | None = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep is None:
            raise InputError("FLDetectorLagged needs `keep`: how many clients, or what fraction of them.")

    def score(self, state: FLDetectorState, round_: Round) -> Scores | None:
        """Score each client by its mean distance in earlier rounds. A new client gets the median score."""
        now = super().score(state, round_)
        if now is None:
            return None
        known = np.array([c in state.distances for c in round_.clients])
        values = np.array([np.mean(state.distances[c]) if c in state.distances else 0.0 for c in round_.clients])
        middle = float(np.median(values[known])) if known.any() else 0.0
        return Scores(round_.clients, np.where(known, values, middle), suspects=now.suspects, evidence=now.evidence)
