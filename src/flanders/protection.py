"""The function `defend`, which protects one round.

To protect a round means to let a filter drop suspicious clients, and to aggregate the models of the other clients.
The models of a round are an array with a row for each client.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from flanders.arrays import Array, IntVector, copied
from flanders.filters import Filter, Scores
from flanders.filters.filter import checked_rows, checked_scores
from flanders.filters.long_updates import too_long
from flanders.linalg.products import usable_rows
from flanders.outcome import Outcome
from flanders.plain_text import first_few, printable
from flanders.record import STAYS, ClientRecord, Fate
from flanders.round import Round

S = TypeVar("S")
log = logging.getLogger("flanders")

Aggregate = Callable[[IntVector], Array]
"""A function that takes the indices of the kept rows and returns the new global model."""
NUMERICAL = (np.linalg.LinAlgError, ArithmeticError)
"""The errors that a filter or an aggregator raises if a computation fails, e.g. if an equation has no solution."""
NO_SCORES = "no scores yet: all usable models were aggregated"
"""The note of a round in which the filter gives no scores, and no update is too long."""
FIRST_LOOK = "too little is known yet: only clients that stand out from the rest are dropped"
"""The note of a round in which the filter knows too little to judge, but can drop clients that stand out."""
UNUSABLE = "values not finite, or too large"
"""The reason why a client's model is left out before the filter sees it."""
MOST_NAMED, LONGEST_NAME = 20, 80
"""The most clients that a line of the log names, and the most characters of each name, so that lines stay short."""


def defend(
    filter: Filter[S],
    state: S,
    round_: Round,
    aggregate: Aggregate,
    fallback: Aggregate | None = None,
) -> Outcome:
    """Protect one round: score the clients, select which to keep, aggregate their models, remember the round.

    `state` is the filter's memory. `aggregate` takes the indices of the kept rows and returns the new model.
    `fallback` is used instead of `aggregate` while the filter knows too little to judge. A row is left out before
    the filter sees it if it has values that are not finite, or too large to compute with. If the filter gives no
    scores, a row is dropped only if it is much farther from the global model than most rows. If nobody is kept, or
    a computation of the filter or the aggregator fails, the global model stays as it is.
    """
    usable = usable_clients(round_)
    if usable.size == 0:
        note = f"no client sent a usable model: {STAYS}"
        return _outcome(round_, copied(round_.global_model), usable, usable, None, state, note, {})
    seen = round_.take(usable)  # what the filter sees
    scores, reasons, note = None, {}, ""
    try:
        scores = checked_scores(filter, filter.score(state, seen), seen)
        if scores is None:
            reasons = too_long(seen)
            kept = np.setdiff1d(np.arange(usable.size), list(reasons))
        else:
            kept = checked_rows(filter, filter.select(scores), usable.size)
    except NUMERICAL as error:  # clients may send numbers for which the computation fails
        kept = np.arange(0)
        note = f"{type(filter).__name__} cannot judge this round ({error}): {STAYS}"
    judged, model = scores is not None and not scores.provisional, None
    if kept.size:
        try:
            model = (aggregate if judged or fallback is None else fallback)(usable[kept])
        except NUMERICAL as error:
            kept, note = np.arange(0), f"the kept models cannot be aggregated ({error}): {STAYS}"
    if kept.size == 0:
        model, reasons, note = copied(round_.global_model), {}, note or f"the filter kept nobody: {STAYS}"
    elif not judged:
        note = NO_SCORES if scores is None and not reasons else FIRST_LOOK
    if scores is not None:
        note = "; ".join(part for part in (note, scores.note) if part)
    after = _amended(filter, state, seen, kept, model, scores)
    reasons = {int(usable[row]): why for row, why in reasons.items()}
    return _outcome(round_, model, usable[kept], usable, scores, after, note, reasons)


def _amended(filter: Filter[S], state: S, seen: Round, kept: IntVector, model: Array, scores: Scores | None) -> S:
    """Return the filter's memory after a round. If the computation fails, return the memory before the round."""
    try:
        return filter.amend(state, seen, kept, model, scores)
    except NUMERICAL as error:
        log.warning("%s cannot remember this round (%s)", type(filter).__name__, error)
        return state


def usable_clients(round_: Round) -> IntVector:
    """Return the indices of the rows that are finite and not so large that squared distances would overflow."""
    fine = usable_rows(round_.updates)
    if not fine.all():
        bad = [round_.clients[i] for i in np.flatnonzero(~fine)]
        names = first_few(bad, MOST_NAMED, lambda client: printable(client, LONGEST_NAME))
        log.warning("left out before scoring, %s: clients %s", UNUSABLE, names)
    return np.flatnonzero(fine)


def _outcome(
    round_: Round,
    model: Array,
    kept: IntVector,
    usable: IntVector,
    scores: Scores | None,
    state: object,
    note: str,
    reasons: Mapping[int, str],
) -> Outcome:
    """Return the outcome. If there are no scores, `reasons` says why rows are dropped; `note` is the default."""
    if kept.size == 0:
        log.warning("%s", note)
    place_in_scores = {int(row): i for i, row in enumerate(usable)}
    kept_rows = set(kept.tolist())
    records = []
    for row, client in enumerate(round_.clients):
        i, weight = place_in_scores.get(row), float(round_.weights[row])
        fate = Fate.REFUSED if i is None else Fate.KEPT if row in kept_rows else Fate.DROPPED
        score, chance, why = math.nan, math.nan, UNUSABLE if i is None else reasons.get(row, note)
        if i is not None and scores is not None:
            score, why = float(scores.values[i]), scores.reasons[i] if i < len(scores.reasons) else ""
            chance = math.nan if scores.probabilities is None else float(scores.probabilities[i])
        reason = "" if fate is Fate.KEPT else why or f"score {score:.4g}"
        records.append(ClientRecord(client, fate, score, chance, reason, weight))
    return Outcome(model, kept, tuple(records), scores, state, note)
