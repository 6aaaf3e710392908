"""The judge: which of two camps is wrong?

The best witness is the server. If it has examples of its own, the judge averages the updates of each camp and
compares the losses of the two models on the examples (`Examples`). If there are no examples, or if they do not tell
the camps apart, the judge hears other witnesses (`wrong_camp`), in this order:

1. the clients that the user trusts: the camp with fewer of them is wrong;
2. the past: a camp is wrong if its clients are new and those of the other camp were accepted before. It is also
   wrong if it has changed clearly more than the other camp since its clients were accepted;
3. the majority: the smaller camp is wrong, unless both are of about the same size. The majority is not heard if the
server has examples: their losses have then shown no harm in either camp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.filters.camps.directions import mean_cosine_within
from flanders.linalg.products import combine
from flanders.round import Round

WORSE = 1.75
"""A camp is worse than another if its losses are higher by more than this many standard errors. By chance alone
this happens in 4% of the comparisons."""
DRAWS = 3
"""How many random parts of the larger camp are compared with the smaller one: a single part may be an odd one."""
MARGIN = 0.02
"""If the server gives one loss only, not one for each example, a difference of this share counts like `WORSE`."""
TURNED = 0.1
"""Honest camps change less than this from round to round, in mean cosine and in cosine with the crowd."""
TURNED_MOST = 0.3
"""A majority must have changed this much before the change counts against it."""
FEW = 4
"""Camps of fewer clients are not judged by how they have changed: that says too little."""
MOST = 0.5
"""If the shares of clients that were accepted before differ by more than this, the camp with the lower share is
wrong."""
LARGEST_LOSS = 1e6
"""A loss that is not finite counts as this much, and so does a larger one."""
LIKE_SIZE = "two camps of like size"


@dataclass
class Examples:
    """The losses on the server's own examples. They are computed once for each set of clients."""

    round_: Round
    known: dict[bytes, FloatVector] = field(default_factory=dict)
    """The losses that were computed already, by the set of clients."""

    def losses(self, rows: BoolVector) -> FloatVector:
        """Return the losses of the weighted mean of these rows."""
        key = np.packbits(rows).tobytes()
        if key not in self.known:
            weights = np.where(rows, self.round_.weights, 0.0)
            if not weights.any():
                weights = rows.astype(float)
            model = combine(weights / weights.sum(), self.round_.updates)
            assert self.round_.evaluate is not None
            losses = np.atleast_1d(np.asarray(self.round_.evaluate(model), dtype=np.float64)).ravel()
            self.known[key] = np.minimum(np.nan_to_num(losses, nan=LARGEST_LOSS, posinf=LARGEST_LOSS), LARGEST_LOSS)
        return self.known[key]

    def worse(self, camp: BoolVector, other: BoolVector) -> float:
        """Return by how many standard errors the losses of one camp's mean are above those of the other's.

        Where training is noisy, a mean of many models has other losses than a mean of few, even if all clients are
        honest. So the smaller camp is compared with random parts of the larger one that have the same size. The
        seed is fixed, so that the same round always gets the same decision.
        """
        size, rng = int(min(camp.sum(), other.sum())), np.random.default_rng(0)
        means = []
        for rows in (camp, other):
            at = np.flatnonzero(rows)
            draws = [at] if at.size == size else [rng.choice(at, size, replace=False) for _ in range(DRAWS)]
            means.append(np.mean([self.losses(np.isin(np.arange(len(rows)), draw)) for draw in draws], axis=0))
        return standard_errors(means[0], means[1])

    def hurts(self, rows: BoolVector, fewer: BoolVector) -> bool:
        """Tell whether the losses clearly rise if only `fewer` of the rows are used."""
        return standard_errors(self.losses(fewer), self.losses(rows)) > WORSE


def standard_errors(losses: FloatVector, others: FloatVector) -> float:
    """Return by how many standard errors losses are above others on the same examples: the paired t statistic.

    A single loss has no standard error. Its relative difference is then scaled so that `MARGIN` becomes `WORSE`.
    """
    difference = losses - others
    if difference.size == 1:
        return float(difference[0] / max(abs(float(others[0])), 1e-12) / MARGIN * WORSE)
    error = difference.std(ddof=1) / math.sqrt(difference.size)
    return float(difference.mean() / max(float(error), 1e-12))


@dataclass(frozen=True, eq=False)
class Past:
    """What is known about the clients of a round. Each tuple has one entry for each part of the model."""

    changes: tuple[FloatVector, ...] = ()
    """How much each client's cosine with the crowd has changed since it was accepted; NaN if it never was."""
    cosines: tuple[FloatMatrix, ...] = ()
    """The cosines between the updates of this round."""
    common: tuple[float, ...] = ()
    """The smallest mean cosine that accepted clients had in any round so far."""
    trusted: BoolVector | None = None
    """Which clients the user trusts; None if the user named nobody."""

    def risen(self, camp: BoolVector) -> float:
        """Return how far the mean cosine of a camp is above the smallest one that accepted clients had.

        Attackers that pull in one direction have more in common than honest clients. The smallest value of all
        rounds is used, so that attackers cannot raise it bit by bit.
        """
        pairs = zip(self.cosines, self.common, strict=False)
        return max((mean_cosine_within(cosines, camp) - before for cosines, before in pairs), default=0.0)

    def turned(self, camp: BoolVector) -> float:
        """Return how much the course of a camp has changed since its clients were accepted."""
        known = [change[camp & ~np.isnan(change)] for change in self.changes]
        return max(
            (abs(float(np.median(own))) for own in known if own.size >= max(FEW, camp.sum() / 2)), default=0.0
        )

    def accepted(self, camp: BoolVector) -> float:
        """Return the share of a camp's clients that were accepted before."""
        return float((~np.isnan(self.changes[0]))[camp].mean()) if self.changes else 0.0


def wrong_camp(
    low: BoolVector, high: BoolVector, past: Past, *, majority: bool = True
) -> tuple[BoolVector | None, str]:
    """Return which of two camps is wrong, and the reason in words; None if no witness can tell.

    The witnesses are the trusted clients, the past and the majority, in this order. `majority=False` leaves the
    majority out.
    """
    if past.trusted is not None:
        inside = [int((past.trusted & camp).sum()) for camp in (low, high)]
        if inside[0] != inside[1]:
            return (low if inside[0] < inside[1] else high), "more of the trusted clients are in the other camp"
    accepted = [past.accepted(camp) for camp in (low, high)]
    if abs(accepted[0] - accepted[1]) > MOST:
        return (low if accepted[0] < accepted[1] else high), "the other camp was accepted in earlier rounds"
    risen, turned = ([measure(camp) for camp in (low, high)] for measure in (past.risen, past.turned))
    # Mean cosines change less than cosines with the crowd do, so the change counts twice. It counts in both
    # directions.
    common = [2 * abs(value) for value in risen]
    most = max((common, turned), key=lambda pair: abs(pair[0] - pair[1]))
    sizes = int(low.sum()), int(high.sum())
    changed = 0 if most[0] > most[1] else 1
    against = sizes[changed] > sum(sizes) / 2
    if min(sizes) >= FEW and abs(most[0] - most[1]) > (TURNED_MOST if against else TURNED):
        words = f"have {'more' if risen[changed] > 0 else 'less'} in common than accepted clients had"
        if most is turned:
            words = "have changed course"
        return (low, high)[changed], f"they {words}, and the other camp has changed less"
    if not majority or abs(sizes[0] - sizes[1]) < math.sqrt(sum(sizes)):
        return None, LIKE_SIZE
    return (low if sizes[0] < sizes[1] else high), "they are the smaller camp"
