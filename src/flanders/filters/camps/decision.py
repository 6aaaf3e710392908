"""Decides which clients of a round to drop, for the filters `Guard` and `Camps`.

A trait is a measurement of each client, such as the direction of its update. If the numbers of a trait form two
groups that differ clearly, these groups are called camps. The evidence says how clearly they differ. A camp is
wrong if its clients are taken for malicious.

The function `drop_camps` measures several traits, and drops the wrong camp whose evidence exceeds the needed
evidence most. Then it measures the clients that are left. It goes on until no camp can be dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.filters.camps.judging import (
    LIKE_SIZE,
    WORSE,
    Examples,
    Past,
    accused_by_past,
    less_trusted,
    wrong_camp,
)
from flanders.filters.camps.loud import LONGER
from flanders.filters.camps.opposing import CLEAR, LIKELY, Opposing
from flanders.filters.camps.splitting import FEWEST, evidence_needed, split_jointly
from flanders.filters.camps.traits import CHANGED, HIGH_MINORITY, LOW, MINORITY, RESIZED, UNKNOWN, Trait
from flanders.filters.filter import Scores
from flanders.filters.fingerprint.explanation import times_as_long
from flanders.layers import is_fully_connected
from flanders.round import Round

log = logging.getLogger("flanders")

WITH_SERVER = 0.15
"""The server's own step supports a camp if this camp has higher cosines with the step than the other camp has. This
is by how much they must be higher.

The server's own step is the update that the server trains on its own examples. In each part of the model, each camp
has a median cosine with this step. The median of the supported camp must be higher by more than this number in some
part, and may not be lower by as much in any part. The medians of attackers that shift honest updates were at most
0.07 above those of honest clients, and mostly far below.
"""
NEARLY_ALL = 0.9
"""If the camp that a trait calls wrong has more than this share of the clients, the trait is ignored. What holds
for nearly all clients does not tell who is malicious.

For example, if all clients have data of the same kind, an update resembles its sender's earlier updates hardly more
than those of other clients. Nearly all fingerprints are then low, and the trait `fingerprint` would call nearly all
clients wrong.
"""


@dataclass(frozen=True, eq=False)
class TwoCamps:
    """Two groups of clients that differ in a trait."""

    trait: Trait
    low: BoolVector
    """Which clients are in the camp with the lower numbers."""
    high: BoolVector
    """Which clients are in the camp with the higher numbers."""
    evidence: float
    """The evidence that there are two camps, in nats; `flanders.filters.camps.splitting` explains it."""
    needed: float
    """The evidence that is needed to drop one of the camps, in nats."""


@dataclass
class Decision:
    """What has been decided about a round so far."""

    round_: Round
    rate: float
    """The share of honest clients that may be dropped (`Guard.max_false_positive_rate`)."""
    kept: BoolVector
    """Which clients are kept."""
    reasons: list[str]
    """For each client, why it is dropped; empty if it is kept."""
    strengths: FloatVector
    """For each dropped client, the evidence against it as a multiple of the needed evidence; zero for kept
    clients."""
    examples: Examples | None
    """The losses on the server's examples; None if the server has no examples."""
    past: Past
    """What is known of the clients from earlier rounds, the cosines of this round, and which clients the user
    trusts."""
    rooted: FloatMatrix | None = None
    """`(m, k)`: the cosines with the server's own step in k parts of the model; None if the server made no step."""
    doubt: bool = False
    """Whether two camps were found and nothing tells which one is wrong."""
    notes: list[str] = field(default_factory=list)
    """What the user should know about the whole round, in words."""

    def note(self, words: str) -> None:
        """Note what the user should know about the whole round. Also log it, and what the user can do about it."""
        self.notes.append(words)
        examples = "" if self.examples else "Give the server some examples (Defense(evaluate=...)), or name"
        log.warning("%s. %s clients that you trust (Guard(trusted=...)).", words, examples or "Name")

    def drop(self, camp: BoolVector, strength: float, why: str) -> None:
        """Drop the clients of a camp. `strength` goes into `strengths`, and `why` into `reasons`."""
        for row in np.flatnonzero(camp & self.kept):
            self.reasons[row] = why
            self.strengths[row] = max(self.strengths[row], strength)
        self.kept &= ~camp

    def drop_each(self, rows: BoolVector, strengths: FloatVector, why: Callable[[int], str]) -> None:
        """Drop clients, each with a strength and a reason of its own."""
        for row in np.flatnonzero(rows).tolist():
            self.drop(np.arange(len(rows)) == row, float(strengths[row]), why(row))


def start_decision(round_: Round, rate: float, past: Past, rooted: FloatMatrix | None = None) -> Decision:
    """Return the decision at its start: all clients are kept. The arguments are explained in `Decision`."""
    m = len(round_.clients)
    examples = None if round_.evaluate is None else Examples(round_)
    return Decision(round_, rate, np.ones(m, dtype=bool), [""] * m, np.zeros(m), examples, past, rooted)


def drop_camps(decision: Decision, traits_of: Callable[[BoolVector], list[Trait]]) -> None:
    """Drop one wrong camp after the other, first the one whose evidence exceeds the needed evidence most, until no
    camp can be dropped.

    `traits_of` measures the traits of the clients that are still kept. It is called again after each drop, since
    some traits compare a client with the average direction of the kept clients. The number of drops has no limit:
    otherwise a few clients with extreme updates could form one camp after the other, and hide the other attackers.
    """
    dropped = True
    while dropped:
        found = []
        for trait in traits_of(decision.kept) if decision.kept.sum() >= FEWEST else ():
            values = trait.values.reshape(len(decision.kept), -1)
            rows = np.flatnonzero(decision.kept & ~np.isnan(values).any(axis=1))
            cut = split_jointly(values[rows], trait.floor, trait.fewest)
            if cut is not None:
                low, high = (mask_of(rows[part], len(decision.kept)) for part in (cut.low, ~cut.low))
                need = evidence_needed(rows.size, decision.rate, trait.per_client)
                found.append(TwoCamps(trait, low, high, cut.evidence, need))
        found.sort(key=lambda camps: camps.needed - camps.evidence)
        dropped = any(drop_wrong_camp(decision, camps) for camps in found)


def mask_of(rows: IntVector, m: int) -> BoolVector:
    """Return which of m rows these are, as a mask."""
    mask = np.zeros(m, dtype=bool)
    mask[rows] = True
    return mask


def drop_wrong_camp(decision: Decision, camps: TwoCamps) -> bool:
    """Drop one of two camps if there is enough evidence and it is known which camp is wrong.

    No camp is dropped if it is needed: if the losses on the server's examples would clearly rise without it. Return
    whether a camp was dropped.
    """
    trait = camps.trait
    if camps.evidence < camps.needed or not far_apart(camps):
        return False
    wrong, witness = wrong_by_nature(camps, decision.past), ""
    if wrong is None and trait.wrong != UNKNOWN:
        return False
    if decision.examples is not None:
        wrong, witness = judge_by_examples(decision, decision.examples, camps, wrong)
    elif wrong is None:
        wrong, witness = wrong_camp(camps.low, camps.high, decision.past)
        if wrong is None:
            note_doubt(decision, trait)
    if wrong is None or are_needed(decision, wrong):
        return False
    words = (trait.words[0] if wrong is camps.low else trait.words[1]) + where_apart(camps)
    why = f"{words}{others_in(wrong)} (evidence {camps.evidence:.0f} nats, needed {camps.needed:.0f})"
    decision.drop(wrong, camps.evidence / camps.needed, f"{why}; {witness}" if witness else why)
    return True


def are_needed(decision: Decision, rows: BoolVector) -> bool:
    """Whether the losses on the server's examples clearly rise without these clients."""
    return decision.examples is not None and decision.examples.hurts(decision.kept, decision.kept & ~rows)


def drop_long(decision: Decision, rows: BoolVector, longer: FloatVector) -> None:
    """Drop clients whose updates are much longer than the others, unless they are needed.

    `longer` has log(length / median length) of each client; see `longer_than_others`.
    """
    if not rows.any() or are_needed(decision, rows):
        return
    decision.drop_each(rows, longer / LONGER, lambda row: f"{times_as_long(longer[row])} as long as the others")


def drop_opposing(decision: Decision, found: Opposing, *, by_server: bool = False) -> None:
    """Drop the clients that point against the others, if this is clear enough and they are not needed.

    `by_server` says whether the server's own step was used to find them. If so, and if all layers are fully
    connected, this is always clear enough.
    """
    connected = is_fully_connected(decision.round_.layers or {})
    needed = CLEAR if not connected else -np.inf if by_server else LIKELY
    if not found.rows.any() or found.evidence < needed or are_needed(decision, found.rows):
        return
    average, limit = found.averages, found.limits
    strengths = np.divide(average, limit, out=np.zeros_like(average), where=found.rows)

    def why(row: int) -> str:
        return f"against the others in the first layers (mean cosine {average[row]:.2f}, limit {limit[row]:.2f})"

    decision.drop_each(found.rows, strengths, why)


def where_apart(camps: TwoCamps) -> str:
    """Return words that name the part of the model in which two camps differ most. Differences are compared in
    standard deviations.

    The result is empty if the numbers of the trait do not come from parts of the model.
    """
    names, values = camps.trait.parts, camps.trait.values
    if not names:
        return ""
    low, high = values[camps.low], values[camps.high]
    spread = np.sqrt((low.var(axis=0) * len(low) + high.var(axis=0) * len(high)) / (len(low) + len(high)))
    apart = np.abs(low.mean(axis=0) - high.mean(axis=0)) / (spread + camps.trait.floor)
    return f" in {names[int(np.argmax(apart))]}"


def others_in(camp: BoolVector) -> str:
    """Return in words how many other clients are in the same camp as a client."""
    others = int(camp.sum()) - 1
    return f"; the same holds for {others} other client{'s' if others > 1 else ''}" if others else ""


def judge_by_examples(
    decision: Decision, examples: Examples, camps: TwoCamps, wrong: BoolVector | None
) -> tuple[BoolVector | None, str]:
    """Return which camp to drop, and the reason in words. The server's examples decide, if they can.

    `wrong` is the camp that the trait itself calls wrong, or None if the trait does not tell. If the losses of both
    camps are about the same, `judge_alike` decides.

    If one camp has clearly higher losses, this camp is dropped. But no camp is dropped in three cases:

    - `wrong` is the camp with the lower losses.
    - `wrong` is None, and the server's own step supports the camp with the higher losses (`WITH_SERVER`).
    - The camp with the higher losses has nearly all clients (`NEARLY_ALL`), and still improves the global model.
      Otherwise a client with more data than the others could stop every round.
    """
    t = examples.worse(camps.low, camps.high)
    worse, other = (camps.low, camps.high) if t > 0 else (camps.high, camps.low)
    if abs(t) <= WORSE:
        return judge_alike(worse, other, wrong, decision.past)
    objects = wrong is other
    if decision.rooted is not None and wrong is None:
        sides = np.median(decision.rooted[worse], axis=0) - np.median(decision.rooted[other], axis=0)
        objects = bool(sides.max() > WITH_SERVER and sides.min() > -WITH_SERVER)
    if objects or (worse.sum() > NEARLY_ALL * (worse | other).sum() and examples.improve(worse)):
        return None, ""
    return worse, f"the server's losses are higher with them ({abs(t):.1f} standard errors)"


def judge_alike(
    worse: BoolVector, other: BoolVector, wrong: BoolVector | None, past: Past
) -> tuple[BoolVector | None, str]:
    """Return which camp to drop, and the reason in words, if the losses of both camps are about the same.

    `worse` has slightly higher losses than `other`, and `wrong` is as in `judge_by_examples`. If it is None, the
    trusted clients decide. If they do not tell, the past may speak against `worse`, but not against `other`.
    If `wrong` is a camp, it is dropped, unless it is `other` and the larger one: a majority that does no harm is
    honest more often than not.
    """
    if wrong is not None:
        return (None if wrong is other and wrong.sum() > worse.sum() else wrong), ""
    untrusted, why = less_trusted(worse, other, past.trusted)
    if untrusted is None:
        accused, why = accused_by_past(worse, other, past)
        untrusted = accused if accused is worse else None
    return untrusted, why


def far_apart(camps: TwoCamps) -> bool:
    """Whether two camps are so far apart that one of them may be dropped.

    If the trait tells by itself which camp is wrong, or has no limit, the result is true. Otherwise the limit is a
    negative number, such as -0.3. The median of the lower camp must then be below -0.3, and that of the upper camp
    above 0.3.
    """
    trait = camps.trait
    if trait.wrong != UNKNOWN or trait.limit == np.inf:
        return True
    low, high = (float(np.median(trait.values[camp])) for camp in (camps.low, camps.high))
    return low < trait.limit < -trait.limit < high


def wrong_by_nature(camps: TwoCamps, past: Past) -> BoolVector | None:
    """Return the camp that the trait itself calls wrong, or None if it calls neither camp wrong.

    The result is also None in two cases. The wrong camp has nearly all clients (`NEARLY_ALL`). Or the wrong camp is
    the larger one, and a much lower share of its clients was dropped the last time they took part than of the other
    camp's clients (`Past.may_outweigh`).
    """
    trait, low, high = camps.trait, camps.low, camps.high
    wrong = None
    medians = [float(np.median(trait.values[camp])) for camp in (low, high)]
    farther = low if abs(medians[0]) > abs(medians[1]) else high
    if trait.wrong == LOW:
        wrong = low if medians[0] < trait.limit else None
    elif trait.wrong == HIGH_MINORITY:
        wrong = high if farther is high and high.sum() <= MINORITY * (low | high).sum() else None
    elif trait.wrong in (CHANGED, RESIZED):
        wrong = None if max(map(abs, medians)) < trait.limit else farther
        if trait.wrong == RESIZED and 2 * farther.sum() > (low | high).sum() and past.goes_on(farther):
            wrong = None
    if wrong is None or wrong.sum() > NEARLY_ALL * (low | high).sum():
        return None
    return wrong if past.may_outweigh(high if wrong is low else low, wrong) else None


def note_doubt(decision: Decision, trait: Trait) -> None:
    """Note and log that there are two camps and that nothing tells which one is wrong. Do so once in a round."""
    if decision.doubt:
        return
    decision.doubt = True
    decision.note(f"{LIKE_SIZE} (by {trait.name}), and nothing tells which one is wrong")


def scores_of(decision: Decision, evidence: object) -> Scores:
    """Return the decision as scores. Clients with a score of at least 1 are dropped.

    `evidence` is what the filter has measured and needs again in `Filter.amend`.
    """
    values = np.where(decision.kept, np.minimum(decision.strengths, 0.99), np.maximum(decision.strengths, 1.0))
    return Scores(
        decision.round_.clients,
        values,
        suspects=~decision.kept,
        reasons=tuple(decision.reasons),
        evidence=evidence,
        note="; ".join(decision.notes),
    )
