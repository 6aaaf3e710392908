"""The class `WeightLimits`: limits on the weight that clients can claim.

The weight of a client is its number of examples. The client claims this number, and the server cannot check the
claim. A client is *known* if its last reply was kept. All other clients are *newcomers*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import Message

from flanders.arrays import BoolVector, FloatVector
from flanders.checks import check_number
from flanders.flower.reply_metrics import claim_of, set_claim
from flanders.hosts.claimed_weights import MOST_EXAMPLES, capped_at_median

FEWEST_KNOWN, LEAST_KNOWN = 3, 0.2
"""The weight of newcomers is limited only if at least `FEWEST_KNOWN` clients are known, and at least the share
`LEAST_KNOWN` of the round's clients.

If a server asks different clients in each round, nearly all clients are newcomers. Then the few known clients must
not decide alone.
"""


@dataclass(frozen=True)
class WeightLimits:
    """Limits on the weights of clients.

    Parameters
    ----------
    times_median
        The largest weight of a client, as a multiple of the median weight of the round. None: no limit. With the
        default, if nine of ten clients have equal weights, the tenth has at most a quarter of the total.
    newcomers
        The largest share of the weight for all newcomers together: clients that are new, or whose last reply was
        not kept. The limit is for filters with a memory: an attacker can come back under new names, of which the
        filter remembers nothing. If fewer than three clients, or less than a fifth of the round's clients, are
        known, the weight of newcomers is not limited in this round. None: no limit in any round.
    max_examples
        Refuse replies that claim more examples than this. None: no limit.

    Examples
    --------
    >>> limits = WeightLimits(times_median=3)
    >>> limits.capped([70.0, 80.0, 70_000.0])
    [70.0, 80.0, 240.0]
    """

    times_median: float | None = 3.0
    newcomers: float | None = 0.25
    max_examples: float | None = None

    def __post_init__(self) -> None:
        # The least share of newcomers is above zero. With zero, no new client would ever have a weight.
        ranges = {"times_median": (1, math.inf), "newcomers": (0.01, 1), "max_examples": (1, MOST_EXAMPLES)}
        for name, (low, high) in ranges.items():
            check_number("WeightLimits", name, getattr(self, name), low, high, optional=True)

    def capped(self, claims: Sequence[float]) -> list[float]:
        """Return the claimed weights of a round, lowered to what `times_median` allows."""
        return capped_at_median(claims, self.times_median)

    def cap_claims(self, messages: Sequence[Message], key: str) -> tuple[list[float], list[int]]:
        """Lower claims that are too large. Return all claims, and the positions of those that were lowered.

        `key` is the name of the metric that holds the claim.
        """
        before = [claim_of(message, key) for message in messages]
        after = self.capped(before)
        lowered = [row for row, claim in enumerate(before) if after[row] < claim]
        for row in lowered:
            set_claim(messages[row], key, after[row])
        return after, lowered

    def factor_for_newcomers(self, weights: FloatVector, known: BoolVector, kept: BoolVector) -> float:
        """Return the factor by which the weights of kept newcomers are multiplied.

        With this factor, the newcomers have at most the share `newcomers` of the weight of all kept clients. The
        factor is 1 if the weights need not be lowered. It is 0 if the filter kept only newcomers, though enough
        clients are known.
        """
        share = self.newcomers
        if share is None or known.all() or known.sum() < max(FEWEST_KNOWN, LEAST_KNOWN * known.size):
            return 1.0
        old, new = float(weights[kept & known].sum()), float(weights[kept & ~known].sum())
        if new == 0 or share == 1:
            return 1.0
        return min(1.0, share / (1 - share) * old / new)


DEFAULT_LIMITS = WeightLimits()


def largest_share(weights: FloatVector) -> float:
    """Return the largest share of the total weight that one client has."""
    return float(np.max(weights) / np.sum(weights)) if weights.size else 0.0
