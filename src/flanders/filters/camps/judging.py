"""The rules that say which of two camps of clients is wrong.

Two camps are two groups of clients that differ clearly. A camp is wrong if its clients are taken for malicious. The
module `decision` finds the camps and asks these rules which camp to drop. A client is accepted if the filter has
kept it in an earlier round.

The best source is the server. If it has examples of its own, the models of each camp are averaged, and the losses
of the two averages on the examples are compared (class `Examples`). If there are no examples, the function
`wrong_camp` asks other sources, in this order:

1. The clients that the user trusts. The camp with fewer of them is wrong.
2. The past. If most clients of one camp were accepted in earlier rounds, and most clients of the other camp were
   not, the other camp is wrong. There must be enough accepted clients, and most of them in one camp.
   Otherwise, if the clients of one camp have changed clearly more than those of the other camp, the camp that has
   changed is wrong.
3. The majority. The smaller camp is wrong, unless both are of about the same size.

If there are examples and the losses are about the same, the trusted clients and the past are asked, too. The past
may then only speak against the camp whose losses are slightly higher. The majority is not asked, since the losses
have shown that neither camp does harm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, copied
from flanders.filters.camps.directions import cosines_with_middle, mean_cosine_within
from flanders.filters.camps.splitting import split_in_two
from flanders.filters.camps.traits import LEAST_SPREAD_OF_COSINES
from flanders.filters.server_losses import ServerLosses
from flanders.linalg.products import combine
from flanders.round import Round

WORSE = 1.75
"""A camp is worse than the other if its losses are higher by more than this many standard errors. By chance alone,
the losses differ as much in 4% of the comparisons."""
DRAWS = 3
"""How many random parts of the larger camp, each as large as the smaller camp, are compared with the smaller camp.
A single part may be unusual."""
MARGIN = 0.02
"""If the server gives a single loss, and not one for each example, there is no standard error. In this case, a camp
is worse if its loss is higher by more than this share of the other camp's loss. A smaller difference may be
chance."""
TURNED = 0.1
"""A camp is wrong if it has changed by this much more than the other camp since its clients were accepted.

The change is a difference of cosines; see `Past.risen` and `Past.turned`. Camps of honest clients change less.
"""
TURNED_MOST = 0.3
"""For a camp with more than half of the clients, this limit is used instead of `TURNED`. It is higher, since it
would do more harm to drop such a camp by mistake."""
FEW = 4
"""Camps of fewer clients are not judged by how much they have changed. The changes of so few clients say too
little."""
MOST = 0.5
"""In each camp, some share of the clients was accepted in earlier rounds. If the shares of the two camps differ by
more than this, the camp with the lower share is wrong, if `outweighs` agrees. A smaller difference may be chance,
since new clients may be in either camp."""
FEWEST_ACCEPTED, LEAST_ACCEPTED = 3, 0.2
"""A smaller camp may outweigh a larger one only with at least `FEWEST_ACCEPTED` clients that were accepted in
earlier rounds, and at least the share `LEAST_ACCEPTED` of the clients in both camps.

If a server asks different clients in each round, nearly all clients are new. Then the few known clients must not
decide alone. Otherwise a single attacker could behave well in one round, and stop all later rounds.
"""
LARGEST_LOSS = 1e6
"""A loss that is larger than this, or not finite, is replaced by this. A loss below the negative of this becomes
the negative. Otherwise a mean of losses might not be finite."""
LIKE_SIZE = "two camps of about the same size"


@dataclass
class Examples:
    """Computes losses on the server's own examples, once for each set of clients."""

    round_: Round
    known: dict[bytes, FloatVector] = field(default_factory=dict)
    """The losses that were computed already. The key is the set of clients, packed into bytes."""
    server: ServerLosses = field(init=False)
    """Calls the server's `evaluate`."""

    def __post_init__(self) -> None:
        self.server = ServerLosses(self.round_)

    def losses(self, rows: BoolVector) -> FloatVector:
        """Return the losses of the weighted mean of these clients' models: one for each example, or only one."""
        key = np.packbits(rows).tobytes()
        if key not in self.known:
            weights = np.where(rows, self.round_.weights, 0.0)
            if not weights.any():
                weights = rows.astype(float)
            model = combine(weights / weights.sum(), self.round_.updates)
            self.known[key] = np.clip(self.server.of(model), -LARGEST_LOSS, LARGEST_LOSS)
        return self.known[key]

    def worse(self, camp: BoolVector, other: BoolVector) -> float:
        """Return by how many standard errors the losses of `camp` are above those of `other`.

        The losses of a camp are those of the mean of its models. If training is noisy, a mean of many models has
        other losses than a mean of few models, even if all clients are honest. So the smaller camp is compared with
        random parts of the larger camp that are as large as the smaller camp. The seed is fixed, so that the same
        round always gets the same decision.
        """
        size, rng = int(min(camp.sum(), other.sum())), np.random.default_rng(0)
        means = []
        for rows in (camp, other):
            at = np.flatnonzero(rows)
            draws = [at] if at.size == size else [rng.choice(at, size, replace=False) for _ in range(DRAWS)]
            means.append(np.mean([self.losses(np.isin(np.arange(len(rows)), draw)) for draw in draws], axis=0))
        return standard_errors(means[0], means[1])

    def gain(self, rows: BoolVector, fewer: BoolVector) -> tuple[float, float]:
        """Return by how much the losses fall if the mean model of `fewer` replaces the mean model of `rows`.

        The first number is a share of the mean loss, and the second one is in standard errors.
        """
        before, after = self.losses(rows), self.losses(fewer)
        return 1.0 - float(after.mean() / max(float(before.mean()), 1e-12)), standard_errors(before, after)

    def hurts(self, rows: BoolVector, fewer: BoolVector) -> bool:
        """Whether the mean model of `fewer` has clearly higher losses than the mean model of `rows`."""
        return standard_errors(self.losses(fewer), self.losses(rows)) > WORSE

    def improve(self, rows: BoolVector) -> bool:
        """Whether the mean model of these clients has lower losses than the global model."""
        before = np.clip(self.server.of(copied(self.round_.global_model)), -LARGEST_LOSS, LARGEST_LOSS)
        return bool(self.losses(rows).mean() < before.mean())


def standard_errors(losses: FloatVector, others: FloatVector) -> float:
    """Return by how many standard errors `losses` are above `others`: the paired t statistic.

    These are the losses of two models on the same examples. If there is only one loss of each model, there is no
    standard error. The relative difference of the two losses is then scaled so that `MARGIN` becomes `WORSE`.
    """
    difference = losses - others
    if difference.size == 1:
        return float(difference[0] / max(abs(float(others[0])), 1e-12) / MARGIN * WORSE)
    error = difference.std(ddof=1) / math.sqrt(difference.size)
    return float(difference.mean() / max(float(error), 1e-12))


@dataclass(frozen=True, eq=False)
class Past:
    """What is known about the m clients of a round. Each tuple has one entry for each part of the model."""

    changes: tuple[FloatVector, ...] = ()
    """`(m,)`: by how much each client's cosine with the common direction is above its usual value.

    The common direction is the mean direction of the updates accepted last. NaN if the client was never accepted.
    """
    cosines: tuple[FloatMatrix, ...] = ()
    """`(m, m)`: the cosines between the updates of this round."""
    common: tuple[float, ...] = ()
    """The mean cosine between the updates of two accepted clients, in the round in which this mean was lowest."""
    trusted: BoolVector | None = None
    """Which clients the user trusts; None if the user named nobody."""
    dropped: BoolVector | None = None
    """Which clients were dropped the last time they took part; None if this is not remembered."""

    def risen(self, camp: BoolVector) -> float:
        """Return by how much the mean cosine between two clients of a camp is above `common`.

        This is computed for each part of the model, and the largest number is returned. Attackers that push the
        model in a common direction have higher cosines with each other than honest clients. They cannot raise
        `common` bit by bit, since it is the lowest value of all rounds.
        """
        pairs = zip(self.cosines, self.common, strict=False)
        return max((mean_cosine_within(cosines, camp) - before for cosines, before in pairs), default=0.0)

    def turned(self, camp: BoolVector) -> float:
        """Return how far the median of `changes` in a camp is from zero, in the part where it is farthest.

        At least half of the camp, and at least `FEW` clients, must have been accepted before. Otherwise the result
        is zero.
        """
        known = [change[camp & ~np.isnan(change)] for change in self.changes]
        return max(
            (abs(float(np.median(own))) for own in known if own.size >= max(FEW, camp.sum() / 2)), default=0.0
        )

    def accepted(self, camp: BoolVector) -> float:
        """Return the share of a camp's clients that were accepted in earlier rounds."""
        return float((~np.isnan(self.changes[0]))[camp].mean()) if self.changes else 0.0

    def goes_on(self, camp: BoolVector) -> bool:
        """Whether the clients of a camp that were accepted in earlier rounds still go the same way.

        They do if the median of `changes` is at most `TURNED_MOST` away from zero in each part.
        """
        known = [change[camp & ~np.isnan(change)] for change in self.changes]
        return bool(known) and all(own.size and abs(float(np.median(own))) <= TURNED_MOST for own in known)

    def outweighs(self, camp: BoolVector, other: BoolVector) -> bool:
        """Whether `camp` has enough accepted clients to let the past speak against the camp `other`."""
        accepted, against = (round(self.accepted(each) * int(each.sum())) for each in (camp, other))
        sizes = int(camp.sum()), int(other.sum())
        enough = max(FEWEST_ACCEPTED, LEAST_ACCEPTED * sum(sizes)) if sizes[0] < sizes[1] else 0
        return accepted >= enough and accepted > against

    def may_outweigh(self, camp: BoolVector, other: BoolVector) -> bool:
        """Whether the past of `camp` may count against `other`.

        There is one case in which it may not. `other` is the larger camp, and `camp` has many more clients that
        were dropped the last time they took part: the shares of such clients in the two camps differ by more than
        `MOST`. Without this rule, a few attackers that were dropped before could turn the decision against
        everybody else.
        """
        if self.dropped is None or other.sum() <= camp.sum():
            return True
        return float(self.dropped[camp].mean() - self.dropped[other].mean()) <= MOST


def less_trusted(low: BoolVector, high: BoolVector, trusted: BoolVector | None) -> tuple[BoolVector | None, str]:
    """Return which of two camps has fewer of the clients that the user trusts, and the reason in words."""
    inside = [0, 0] if trusted is None else [int((trusted & camp).sum()) for camp in (low, high)]
    if inside[0] == inside[1]:
        return None, ""
    return (low if inside[0] < inside[1] else high), "more of the trusted clients are in the other camp"


def accused_by_past(low: BoolVector, high: BoolVector, past: Past) -> tuple[BoolVector | None, str]:
    """Return which of two camps is wrong according to earlier rounds, and the reason in words.

    None if they do not tell.
    """
    accepted = [past.accepted(camp) for camp in (low, high)]
    known, new = (high, low) if accepted[0] < accepted[1] else (low, high)
    if abs(accepted[0] - accepted[1]) > MOST and past.outweighs(known, new):
        return new, "the other camp was accepted in earlier rounds"
    risen, turned = ([measure(camp) for camp in (low, high)] for measure in (past.risen, past.turned))
    # A change of a mean cosine counts twice, since mean cosines change less than cosines with the common direction.
    # Both a rise and a fall count.
    common = [2 * abs(value) for value in risen]
    most = max((common, turned), key=lambda pair: abs(pair[0] - pair[1]))
    sizes = int(low.sum()), int(high.sum())
    changed = 0 if most[0] > most[1] else 1
    against = sizes[changed] > sum(sizes) / 2
    heard = past.may_outweigh((low, high)[1 - changed], (low, high)[changed])
    if not heard or min(sizes) < FEW or abs(most[0] - most[1]) <= (TURNED_MOST if against else TURNED):
        return None, ""
    words = f"have {'more' if risen[changed] > 0 else 'less'} in common than accepted clients had"
    if most is turned:
        words = "have changed direction"
    return (low, high)[changed], f"they {words}, and the other camp has changed less"


def wrong_camp(low: BoolVector, high: BoolVector, past: Past) -> tuple[BoolVector | None, str]:
    """Return which of two camps is wrong, and the reason in words; None if nothing tells which one is wrong.

    The trusted clients, the past and the majority are asked, in this order.
    """
    for wrong, why in (less_trusted(low, high, past.trusted), accused_by_past(low, high, past)):
        if wrong is not None:
            return wrong, why
    sizes = int(low.sum()), int(high.sum())
    if abs(sizes[0] - sizes[1]) < math.sqrt(sum(sizes)):
        return None, LIKE_SIZE
    return (low if sizes[0] < sizes[1] else high), "they are the smaller camp"


def usual_mean_cosine(cosines: FloatMatrix) -> float:
    """Return the mean cosine between the updates of two accepted clients, from the cosines of all of them.

    There may be undetected attackers among the accepted clients. So the clients are divided into two groups by
    their cosines with the middle of the round (see `directions`), and the mean is taken over the larger group.
    """
    cut = split_in_two(cosines_with_middle(cosines), LEAST_SPREAD_OF_COSINES, fewest=2)
    larger = np.ones(len(cosines), dtype=bool)
    if cut is not None:
        larger = cut.low if 2 * cut.low.sum() > len(cosines) else ~cut.low
    return mean_cosine_within(cosines, larger)
