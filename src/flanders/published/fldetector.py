"""The filter FLDetector, changed such that it judges the clients of a round only by earlier rounds.

The FLANDERS paper reports values for FLDetector, but its published code does not have this filter. This module is
our guess at it. The guess would explain the reported values.
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
    r"""FLDetector that judges clients only by earlier rounds (our guess at the FLDetector of the FLANDERS paper).

    .. math:: \text{score}_c^{(t)} = \text{the mean of the shares of } c \text{ in the last rounds before } t

    FLDetector predicts the model of each client in each round. The error of a client is the distance between its
    model and the prediction. The share of client c in a round is its error, divided by the sum of the errors of all
    clients. The mean is over the last `window` rounds in which c has a share. The filter `FLDetector` also counts
    the share of round t itself.

    If the malicious clients are drawn anew in each round, earlier rounds say nothing about them. Then this filter
    is no better than a random choice, and its precision and recall are near the share of malicious clients. The
    FLANDERS paper reports such values for FLDetector: 0.18 to 0.22 with 20% malicious clients. Its published code
    does not have FLDetector. So we do not know whether the paper's FLDetector works this way.

    Parameters
    ----------
    keep
        How many clients to keep in a round: a number, or a fraction of the clients. The clients with the lowest
        scores are kept.
    window
        How many rounds the filter remembers. It averages the shares over these rounds, and estimates the Hessian of
        the loss from them.

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
        """Score each client by its mean share in earlier rounds.

        A client without a share gets the median score of the other clients.
        """
        now = super().score(state, round_)
        if now is None:
            return None
        known = np.array([c in state.distances for c in round_.clients])
        values = np.array([np.mean(state.distances[c]) if c in state.distances else 0.0 for c in round_.clients])
        middle = float(np.median(values[known])) if known.any() else 0.0
        return Scores(round_.clients, np.where(known, values, middle), suspects=now.suspects, evidence=now.evidence)
