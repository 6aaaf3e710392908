"""The five lines that protect a round, and a front door for whoever has just an array."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from flanders.aggregators import FedAvg, Rule
from flanders.filters import Filter, Flanders, Scores
from flanders.geometry import copied, usable_rows
from flanders.state import load_state, save_state, saveable
from flanders.types import Array, ClientId, InputError, IntVector, Round, check_matrix

S = TypeVar("S")
log = logging.getLogger("flanders")

FIRST_LOOK = "too little is known yet: only whoever stands out from the rest is dropped"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a round."""

    model: Array
    """The new global model, `(d,)`."""
    kept: IntVector
    """The rows that were used, in rising order."""
    clients: tuple[ClientId, ...]
    """Who sent each row."""
    scores: Scores | None
    """How abnormal each client looked, for the clients whose rows were usable; None if nothing judged them."""
    unusable: tuple[ClientId, ...]
    """Clients whose rows held NaN or infinite values: dropped before anything else."""
    state: Any
    """The filter's memory for the next round."""
    note: str = ""
    """What happened, if it was out of the ordinary."""

    @property
    def dropped(self) -> tuple[ClientId, ...]:
        """The clients that were not used, unusable ones included."""
        kept = set(self.kept.tolist())
        return tuple(c for row, c in enumerate(self.clients) if row not in kept)

    @property
    def reasons(self) -> dict[ClientId, str]:
        """Why each dropped client was dropped, in words."""
        why = dict.fromkeys(self.dropped, self.note)
        if self.scores is not None:
            values = zip(self.scores.clients, self.scores.values, strict=True)
            why |= {client: f"score {value:.4g}" for client, value in values if client in why}
            why |= self.scores.told(self.dropped)
        return why | dict.fromkeys(self.unusable, "values not finite, or too large")


def defend(
    filter_: Filter[S],
    state: S,
    round_: Round,
    aggregate: Callable[[IntVector], Array],
    fallback: Callable[[IntVector], Array] | None = None,
) -> Outcome:
    """Protect one round: score, select, aggregate who is kept, remember.

    `aggregate` turns the kept rows into a model; `fallback` does while the filter has no scores.
    Rows that are not finite are dropped first. If nobody is left, the global model stays.
    """
    usable, unusable = finite_rows(round_)
    if usable.size == 0:
        note = "no client sent a finite model: the global model stays"
        return _unchanged(round_, None, unusable, state, note)
    seen = round_.take(usable)
    scores = checked_scores(filter_, filter_.score(state, seen), seen)
    kept = np.arange(usable.size) if scores is None else checked_rows(filter_, filter_.select(scores), usable.size)
    if kept.size == 0:
        note = "the filter kept nobody: the global model stays"
        after = filter_.amend(state, seen, kept, round_.global_model, scores)
        return _unchanged(round_, scores, unusable, after, note)
    judged = scores is not None and not scores.provisional
    model = (aggregate if judged or fallback is None else fallback)(usable[kept])
    after = filter_.amend(state, seen, kept, model, scores)
    note = "" if judged else "no scores yet: everyone was aggregated" if scores is None else FIRST_LOOK
    return Outcome(model, usable[kept], round_.clients, scores, unusable, after, note)


def checked_scores(filter_: Filter[Any], scores: Any, seen: Round) -> Scores | None:
    """Return what a filter has scored, or say that it is not a score for each client."""
    if scores is None:
        return None
    name, m = type(filter_).__name__, len(seen.clients)
    if not isinstance(scores, Scores):
        raise InputError(f"{name}.score returned {type(scores).__name__}, expected Scores or None.")
    if np.shape(scores.values) != (m,) or scores.clients != seen.clients:
        raise InputError(
            f"{name}.score returned values of shape {np.shape(scores.values)} for {len(scores.clients)} clients, "
            f"expected ({m},): a score for each client of the round, in its order."
        )
    return scores


def checked_rows(filter_: Filter[Any], rows: Any, m: int) -> IntVector:
    """Return the rows that a filter keeps, or say that they are none of the round's."""
    kept = np.asarray(rows)
    whole = kept.ndim == 1 and (kept.size == 0 or kept.dtype.kind in "iu")
    if not whole or np.any(kept < 0) or np.any(kept >= m) or np.any(np.diff(kept) <= 0):
        raise InputError(
            f"{type(filter_).__name__}.select returned {rows!r}, expected rows from 0 to {m - 1}, each once and in "
            "rising order, e.g. np.flatnonzero(scores.values < limit)."
        )
    return kept.astype(np.int64, copy=False)


def finite_rows(round_: Round) -> tuple[IntVector, tuple[ClientId, ...]]:
    """Return the rows that can be used, and the clients whose rows cannot.

    Unusable is a row with a NaN, an infinity, or numbers so large that squared distances would overflow float64.
    """
    fine = usable_rows(round_.updates)
    usable = np.flatnonzero(fine)
    unusable = tuple(round_.clients[i] for i in np.flatnonzero(~fine))
    if unusable:
        log.warning(
            "dropped before scoring, values not finite or too large: clients %s", ", ".join(map(str, unusable))
        )
    return usable, unusable


def _unchanged(
    round_: Round, scores: Scores | None, unusable: tuple[ClientId, ...], state: Any, note: str
) -> Outcome:
    log.warning("%s", note)
    nobody = np.empty(0, dtype=np.int64)
    return Outcome(copied(round_.global_model), nobody, round_.clients, scores, unusable, state, note)


@saveable
@dataclass(frozen=True, eq=False)
class DefenseState:
    """All that a `Defense` remembers."""

    filter: Any
    model: Array
    generator: dict[str, Any]


class Defense:
    """A filter and a rule in one object that remembers between rounds.

    Parameters
    ----------
    filter_
        Whom to keep. Default: `Flanders()`, which need not be told how many.
    rule
        How to aggregate who is kept. Default: the weighted average.
    fallback
        The rule for rounds in which the filter has no scores yet, usually only the first.
        Default: `rule`. Choose a robust one if clients may be malicious from the start.
    seed
        Makes the filter's and the rules' randomness repeatable. Leave it out in production:
        what an attacker can predict, it can evade.

    Examples
    --------
    >>> from flanders import Defense, DistanceToGlobal, Median
    >>> defense = Defense(DistanceToGlobal(keep=3), Median())
    >>> outcome = defense(np.array([[1., 2.], [50., 60.], [1., 4.], [2., 2.]]))
    >>> outcome.dropped, outcome.model
    ((1,), array([1., 2.]))
    """

    def __init__(
        self,
        filter_: Filter[Any] | None = None,
        rule: Rule | None = None,
        *,
        fallback: Rule | None = None,
        seed: int | None = None,
    ) -> None:
        for name, value, kind in (
            ("filter_", filter_, Filter),
            ("rule", rule, Rule),
            ("fallback", fallback, Rule),
        ):
            if value is not None and not isinstance(value, kind):
                raise InputError(
                    f"The `{name}` parameter of Defense must be a {kind.__name__}, e.g. "
                    f"{'Flanders(keep=0.8)' if kind is Filter else 'Median()'}. Got {value!r} instead."
                )
        self.filter: Filter[Any] = Flanders() if filter_ is None else filter_
        self.rule = FedAvg() if rule is None else rule
        self.fallback = fallback
        for_filter, self._rng = np.random.default_rng(seed).spawn(2)
        self.state = self.filter.init(for_filter)
        self._model: Array = None

    def __call__(
        self,
        updates: Array,
        clients: Iterable[ClientId] | None = None,
        weights: Any = None,
        *,
        global_model: Array = None,
        root: Array = None,
        layers: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Protect one round and remember it; see `Round` for the arguments.

        Without `global_model` the round is taken to have started from the model that the last
        call returned (from zeros in the first round).
        """
        xp, _ = check_matrix(updates)
        if global_model is None and self._model is not None:
            global_model = xp.asarray(self._model)
        round_ = Round(
            updates, () if clients is None else tuple(clients), weights, global_model, root, layers or {}
        )

        def by(rule: Rule) -> Callable[[IntVector], Array]:
            return lambda rows: rule.aggregate(round_.take(rows), self._rng)

        fallback = None if self.fallback is None else by(self.fallback)
        outcome = defend(self.filter, self.state, round_, by(self.rule), fallback)
        self.state, self._model = outcome.state, copied(outcome.model)
        return outcome

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is remembered to a file: the filter's memory, the last model, the generator."""
        save_state(path, DefenseState(self.state, self._model, dict(self._rng.bit_generator.state)))

    def load(self, path: str | os.PathLike[str], like: Array = None) -> None:
        """Go on where the defense that wrote the file was; see `load_state` for `like`."""
        found = load_state(path, like)
        if not isinstance(found, DefenseState) or type(found.filter) is not type(self.state):
            raise InputError(
                f"{path} holds no memory of a Defense with this filter. Load it with the filter it was saved with, "
                "or, if it is from `save_state`, set `defense.state = load_state(...)`."
            )
        self.state, self._model, self._rng.bit_generator.state = found.filter, found.model, found.generator

    def __repr__(self) -> str:
        return f"Defense({self.filter}, {self.rule}, fallback={self.fallback})"
