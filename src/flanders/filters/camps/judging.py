"""Which of two camps is right: the server's examples say, or trusted clients, or the past, or the majority."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector
from flanders.linalg.products import combine
from flanders.round import Round

Mask = NDArray[np.bool_]

WORSE = 1.75
"""One camp is worse than another if its mean leaves losses higher by this many standard errors (4% by chance)."""
DRAWS = 3
"""How many parts of the larger camp, as large as the smaller one, are compared with it: one may be an odd one."""
MARGIN = 0.02
"""A server that gives one loss instead of one an example must see it fall by this share."""
TURNED = 0.1
"""What honest clients have in common, and how far they go along, changes by less than this from round to round."""
TURNED_MOST = 0.3
"""To hold it against a majority that it has changed takes this much."""
FEW = 4
"""The past of fewer clients says too little against a majority."""
MOST = 0.5
"""If the share of clients that were accepted before differs by this much between two camps, that decides."""
LARGEST_LOSS = 1e6
"""What a loss that is not finite counts as."""


@dataclass
class Examples:
    """The server's losses on its own examples, of means of some of the round's updates; each is computed once."""

    round_: Round
    known: dict[bytes, FloatVector] = field(default_factory=dict)

    def losses(self, rows: Mask) -> FloatVector:
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

    def worse(self, camp: Mask, other: Mask) -> float:
        """Return by how many standard errors the losses of a camp's mean are higher than those of another camp's.

        Means of few models lose less than means of many where training is noisy, whoever sent them. So the larger
        camp is represented by parts of it that are as large as the smaller one, drawn at random; the seed is fixed,
        so that a round is always judged alike.
        """
        size, rng = int(min(camp.sum(), other.sum())), np.random.default_rng(0)
        means = []
        for rows in (camp, other):
            at = np.flatnonzero(rows)
            draws = [at] if at.size == size else [rng.choice(at, size, replace=False) for _ in range(DRAWS)]
            means.append(np.mean([self.losses(np.isin(np.arange(len(rows)), draw)) for draw in draws], axis=0))
        return standard_errors(means[0], means[1])

    def hurts(self, rows: Mask, fewer: Mask) -> bool:
        """Tell whether the losses rise clearly if only `fewer` of the rows are used."""
        return standard_errors(self.losses(fewer), self.losses(rows)) > WORSE


def standard_errors(losses: FloatVector, others: FloatVector) -> float:
    """Return the paired t statistic of losses being higher than others.

    A single loss has no standard error: its relative difference is put on the same scale, so that `MARGIN` counts as
    `WORSE` does.
    """
    difference = losses - others
    if difference.size == 1:
        return float(difference[0] / max(abs(float(others[0])), 1e-12) / MARGIN * WORSE)
    error = difference.std(ddof=1) / math.sqrt(difference.size)
    return float(difference.mean() / max(float(error), 1e-12))


@dataclass(frozen=True, eq=False)
class Past:
    """What is known of the round's clients from before; of each part of the model where there are several."""

    changes: tuple[FloatVector, ...] = ()
    """How much each client's course has changed since it was accepted last; NaN without a past."""
    cosines: tuple[FloatMatrix, ...] = ()
    """Cosines between the round's updates."""
    common: tuple[float, ...] = ()
    """The least that accepted clients had in common in any round so far, as a mean cosine."""
    trusted: Mask | None = None
    """Clients that the user vouches for."""

    def risen(self, camp: Mask) -> float:
        """Return how much more a camp has in common than accepted clients once had.

        Attackers who pull together have more in common than honest clients. The least so far counts, so that they
        cannot raise it bit by bit.
        """
        pairs = zip(self.cosines, self.common, strict=False)
        return max((in_common(cosines, camp) - before for cosines, before in pairs), default=0.0)

    def turned(self, camp: Mask) -> float:
        """Return how much a camp's course has changed since its clients were accepted."""
        known = [change[camp & ~np.isnan(change)] for change in self.changes]
        return max(
            (abs(float(np.median(own))) for own in known if own.size >= max(FEW, camp.sum() / 2)), default=0.0
        )

    def accepted(self, camp: Mask) -> float:
        """Return which share of a camp was accepted before."""
        return float((~np.isnan(self.changes[0]))[camp].mean()) if self.changes else 0.0


def in_common(cosines: FloatMatrix, rows: Mask) -> float:
    """Return the mean cosine between two different ones of these rows."""
    own = cosines[np.ix_(rows, rows)]
    n = len(own)
    return float((own.sum() - np.trace(own)) / max(n * (n - 1), 1))


def wrong_camp(low: Mask, high: Mask, past: Past, *, majority: bool = True) -> tuple[Mask | None, str]:
    """Return which of two camps is wrong, and who says so; None if nobody can tell.

    Asked are, in this order, the clients that the user trusts, the clients' own past and, unless told otherwise, the
    majority.
    """
    if past.trusted is not None:
        inside = [int((past.trusted & camp).sum()) for camp in (low, high)]
        if inside[0] != inside[1]:
            return (low if inside[0] < inside[1] else high), "trusted clients are in the other camp"
    accepted = [past.accepted(camp) for camp in (low, high)]
    if abs(accepted[0] - accepted[1]) > MOST:
        return (low if accepted[0] < accepted[1] else high), "the others were accepted before"
    risen, turned = ([measure(camp) for camp in (low, high)] for measure in (past.risen, past.turned))
    risen = [2 * value for value in risen]  # measured against all rounds so far, not only the last
    most = max((risen, turned), key=lambda pair: abs(pair[0] - pair[1]))
    sizes = int(low.sum()), int(high.sum())
    changed = 0 if most[0] > most[1] else 1
    against = sizes[changed] > sum(sizes) / 2
    if min(sizes) >= FEW and abs(most[0] - most[1]) > (TURNED_MOST if against else TURNED):
        words = "have more in common than accepted clients had" if most is risen else "have changed course"
        return (low, high)[changed], f"they {words}, the others have not"
    if not majority or abs(sizes[0] - sizes[1]) < math.sqrt(sum(sizes)):
        return None, "two camps of like size"
    return (low if sizes[0] < sizes[1] else high), "they are fewer"
