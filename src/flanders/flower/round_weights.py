"""The class `RoundWeights`: the weight of each reply of a round.

A client claims its weight, usually as a number of examples. The class lowers claims that are too large.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from flanders.arrays import IntVector
from flanders.client_ids import ClientId
from flanders.flower.replies import Answer, SortedReplies
from flanders.flower.reply_metrics import align_records, set_claim
from flanders.flower.weight_limits import WeightLimits, largest_share
from flanders.plain_text import first_few

TOO_MUCH = 0.5
"""There is a warning if one reply has more than this share of the weight: more than all other replies together."""
MOST_NAMED = 5
"""The most clients that a warning names, so that it stays short."""
FEWEST = 3
"""With fewer replies there is no such warning: one of two replies always has at least half of the weight."""


class RoundWeights:
    """The weights of the replies of a round.

    Claims are lowered in the replies themselves, since strategies read the claims from the replies.

    Parameters
    ----------
    answers
        The replies that can be used.
    claims
        The names of the metrics from which the strategy computes the weight of a reply.
    limits
        The limits on the weights.
    sorted_replies
        All replies of the round. Its lists of notes and warnings get texts that say what was changed.
    """

    def __init__(
        self, answers: Sequence[Answer], claims: Sequence[str], limits: WeightLimits, sorted_replies: SortedReplies
    ) -> None:
        self.answers, self.claims, self.limits, self.sorted_replies = answers, claims, limits, sorted_replies
        messages = [answer.message for answer in answers]
        capped = [limits.cap_claims(messages, key) for key in claims]
        if lowered := sorted({row for _, rows in capped for row in rows}):
            names = first_few(lowered, MOST_NAMED, lambda row: answers[row].asked.label)
            sorted_replies.warnings.append(
                f"claims above {limits.times_median:g} times the median were lowered: {names}"
            )
        self.values = np.array(capped[0][0]) if capped else np.ones(len(answers))

    def limit_newcomers(self, kept: IntVector, known: Collection[ClientId]) -> bool:
        """Lower the weights of kept newcomers if they are too large. Return False if nothing may be aggregated.

        `known` are the clients whose last reply was kept. All other clients are newcomers. Nothing may be
        aggregated if enough known clients have sent replies, but the filter has kept only newcomers.
        """
        is_known = np.array([answer.client in known for answer in self.answers])
        is_kept = np.isin(np.arange(len(self.answers)), kept)
        factor = self.limits.factor_for_newcomers(self.values, is_known, is_kept)
        if 0 < factor < 1:
            new = np.flatnonzero(is_kept & ~is_known).tolist()
            newcomers = "1 newcomer" if len(new) == 1 else f"{len(new)} newcomers"
            if self.claims:
                warning = f"the weight of {newcomers} was lowered to {self.limits.newcomers:.0%} of the total"
            else:
                verb = "counts" if len(new) == 1 else "count"
                warning = f"{newcomers} {verb} in full, since the strategy uses no weights"
            self.sorted_replies.warnings.append(warning)
            for row in new if self.claims else ():
                self.values[row] *= factor
                set_claim(self.answers[row].message, self.claims[0], float(self.values[row]))
        return factor > 0

    def prepare(self, kept: IntVector) -> None:
        """Give the kept replies the same metrics. If one reply outweighs all others together, add a warning."""
        messages = [self.answers[row].message for row in kept]
        self.sorted_replies.notes += align_records(messages)
        share = largest_share(self.values[kept])
        if len(kept) >= FEWEST and share > TOO_MUCH:
            row = int(kept[np.argmax(self.values[kept])])
            self.sorted_replies.warnings.append(
                f"{self.answers[row].asked.label} alone has {share:.0%} of the weight"
            )
