"""One decision out of several looks: the clearest camps first, then the camps of those who are left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import FloatVector
from flanders.filters.camps.judging import WORSE, Examples, Mask, Past, wrong_camp
from flanders.filters.camps.looks import CHANGED, LOW, UNKNOWN, Look
from flanders.filters.camps.splitting import FEWEST, needed, split
from flanders.filters.filter import Scores
from flanders.round import Round

log = logging.getLogger("flanders")

PASSES = 4
"""How often a round is cut in two at most: attackers of more than three kinds at a time are not looked for."""


CAMPS_SHARE = 0.6
"""The share of the evidence that must come from the camps themselves; the server's examples may add the rest.

Honest clients with other data than the server's do worse on its examples, too.
"""


@dataclass(frozen=True, eq=False)
class Camps:
    """Two camps of a look, with the evidence that there are two, and what it takes (nats)."""

    look: Look
    low: Mask
    high: Mask
    evidence: float
    needed: float


@dataclass
class Decision:
    """What has been decided of a round so far."""

    round_: Round
    rate: float
    kept: Mask
    reasons: list[str]
    strengths: FloatVector
    examples: Examples | None
    past: Past
    doubt: bool = False
    notes: list[str] = field(default_factory=list)

    def drop(self, camp: Mask, strength: float, why: str) -> None:
        """Drop clients for a reason."""
        for row in np.flatnonzero(camp & self.kept):
            self.reasons[row] = why
            self.strengths[row] = max(self.strengths[row], strength)
        self.kept &= ~camp


def begin(round_: Round, rate: float, past: Past) -> Decision:
    """Return the decision before anything is looked at: everybody is kept."""
    m = len(round_.clients)
    examples = None if round_.evaluate is None else Examples(round_)
    return Decision(round_, rate, np.ones(m, dtype=bool), [""] * m, np.zeros(m), examples, past)


def decide(decision: Decision, looks_at: Callable[[Mask], list[Look]]) -> None:
    """Drop camps until none is left: in each pass the clearest one that can be judged.

    `looks_at` returns the looks of the clients that are still kept: without the dropped ones the middle of all is
    another one.
    """
    for _ in range(PASSES):
        found = []
        for look in looks_at(decision.kept) if decision.kept.sum() >= FEWEST else ():
            rows = np.flatnonzero(decision.kept & ~np.isnan(look.values))
            cut = split(look.values[rows], look.floor, look.fewest)
            if cut is not None:
                low, high = (np.isin(np.arange(len(decision.kept)), rows[part]) for part in (cut.low, ~cut.low))
                need = needed(rows.size, decision.rate, natural=look.wrong != UNKNOWN)
                found.append(Camps(look, low, high, cut.evidence, need))
        found.sort(key=lambda camps: camps.needed - camps.evidence)
        if not any(judged(decision, camps) for camps in found):
            return


def judged(decision: Decision, camps: Camps) -> bool:
    """Drop one of two camps if that can be justified; tell whether it was.

    With the server's examples a little less evidence for two camps is enough: see `by_examples`.
    """
    look, evidence = camps.look, camps.evidence
    least = 1.0 if decision.examples is None else CAMPS_SHARE
    if evidence < least * camps.needed or not opposed(camps):
        return False
    wrong, witness = by_nature(camps), ""
    if wrong is None and look.wrong != UNKNOWN:
        return False
    if decision.examples is not None:
        wrong, evidence, witness = by_examples(decision, decision.examples, camps, wrong)
    elif wrong is None:
        wrong, witness = wrong_camp(camps.low, camps.high, decision.past)
        if wrong is None:
            doubt(decision, look)
    if wrong is None or evidence < camps.needed:
        return False
    words = look.words[0] if wrong is camps.low else look.words[1]
    why = f"{words} ({int(wrong.sum())} clients, {evidence:.0f} nats of {camps.needed:.0f})"
    decision.drop(wrong, evidence / camps.needed, f"{why}; {witness}" if witness else why)
    return True


def by_examples(
    decision: Decision, examples: Examples, camps: Camps, wrong: Mask | None
) -> tuple[Mask | None, float, str]:
    """Return which camp is wrong, given what the look says, with all evidence and the witness.

    If the mean of one camp leaves the server clearly higher losses than that of the other, half the square of the t
    statistic is evidence, in nats like that of two camps. If neither does, the clients' past decides; never the
    majority, for the server sees no harm.
    """
    t = examples.worse(camps.low, camps.high)
    worse = camps.low if t > 0 else camps.high
    if abs(t) <= WORSE:
        if wrong is not None:
            return wrong, camps.evidence, ""
        told, witness = wrong_camp(camps.low, camps.high, decision.past, majority=False)
        return told, camps.evidence, witness
    objects = worse is not wrong if wrong is not None else examples.hurts(decision.kept, decision.kept & ~worse)
    witness = f"the server loses {abs(t):.1f} standard errors more with them than with others"
    return None if objects else worse, camps.evidence + t**2 / 2, witness


def opposed(camps: Camps) -> bool:
    """Tell whether two camps lie on both sides of where they must, if there is such a place."""
    look = camps.look
    if look.wrong != UNKNOWN or look.limit == np.inf:
        return True
    low, high = (float(np.median(look.values[camp])) for camp in (camps.low, camps.high))
    return low < look.limit < -look.limit < high


def by_nature(camps: Camps) -> Mask | None:
    """Return the camp that the look itself says is wrong; None if it does not."""
    look, low, high = camps.look, camps.low, camps.high
    if look.wrong == LOW:
        return low if float(np.median(look.values[low])) < look.limit else None
    if look.wrong == CHANGED:
        sides = [abs(float(np.median(look.values[camp]))) for camp in (low, high)]
        return None if max(sides) < look.limit else low if sides[0] > sides[1] else high
    return None


def doubt(decision: Decision, look: Look) -> None:
    """Say loudly that there are two camps and nobody can tell which is right."""
    decision.doubt = True
    note = f"two camps of like size ({look.name}), and nothing tells which is right"
    decision.notes.append(note)
    log.warning("%s. Give the server some examples (`evaluate`), or name trusted clients.", note)


def scores_of(decision: Decision, evidence: object) -> Scores:
    """Return the decision as scores: from 1 on a client is dropped."""
    values = np.where(decision.kept, np.minimum(decision.strengths, 0.99), np.maximum(decision.strengths, 1.0))
    return Scores(decision.round_.clients, values, None, ~decision.kept, tuple(decision.reasons), evidence=evidence)
