"""The base class `Filter`, its `Scores`, and helpers for filters.

A filter scores the clients of a round, selects which clients to keep, and may remember the round.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, FloatVector, IntVector
from flanders.checks import InputError, check_number, resolve_count
from flanders.client_ids import ClientId, by_name
from flanders.round import Round

S = TypeVar("S")
log = logging.getLogger("flanders")


@dataclass(frozen=True, eq=False)
class Scores:
    """How suspicious each client of a round is. In every filter, a higher score is more suspicious."""

    clients: tuple[ClientId, ...]
    values: FloatVector
    probabilities: FloatVector | None = None
    """Each client's probability of being malicious; None if the filter does not estimate it."""
    suspects: NDArray[np.bool_] | None = None
    """Which clients the filter calls malicious; None if it only ranks clients."""
    reasons: tuple[str, ...] = ()
    """For each client, in words: what is suspicious; "" if nothing is. The tuple is empty if the filter gives no
    reasons."""
    provisional: bool = False
    """Whether the filter knows too little for a reliable decision. If so, the defense uses its fallback
    aggregator."""
    note: str = ""
    """What the user should know about the whole round, in words."""
    widening: float = 1.0
    """A filter may have limits for scores, and may widen them after rounds in which no client was kept. This is the
    factor by which they are wider than usual."""
    evidence: object = None
    """What `Filter.score` has computed and `Filter.amend` needs again. Only the filter itself reads it."""


class Filter(ABC, Generic[S]):
    """Decides which clients of a round are kept for the aggregation.

    A filter object does not change. Its memory is a separate object, the state: `init` makes it, `score` reads it,
    and `amend` returns the state after a round. To add a filter, write a frozen dataclass with these three methods
    and `select`, and add it to `flanders.catalog`.
    """

    @property
    def needs_examples(self) -> bool:
        """Whether the server must have examples of its own, for `Round.evaluate` or `Round.root`."""
        return False

    @abstractmethod
    def init(self, rng: np.random.Generator | None = None) -> S:
        """Return the state before the first round. All random numbers of the filter depend on `rng`."""

    @abstractmethod
    def score(self, state: S, round_: Round) -> Scores | None:
        """Return the scores of the clients; None if the filter has nothing yet to compare them with."""

    @abstractmethod
    def select(self, scores: Scores) -> IntVector:
        """Return the rows to keep, in rising order."""

    @abstractmethod
    def amend(self, state: S, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None) -> S:
        """Return the state after a round in which the rows `kept` were aggregated into `model`.

        `scores` is what `score` returned for the round. If it is None, the filter computes again what it needs.
        """

    def visible_columns(self, state: S, d: int, layers: Mapping[str, int] | None = None) -> IntVector | None:
        """Return the positions of the parameters that the filter looks at.

        Return None if the filter looks at all parameters, or at different ones in each round. In studies of
        attacks, an attacker may know these positions. A real server keeps them secret. `d` is the number of
        parameters of the model, and `layers` are the sizes of its layers (see `Round`).
        """
        return None


def checked_scores(filter: Filter[Any], scores: object, seen: Round) -> Scores | None:
    """Return the scores of a filter, or None. Raise an error unless there is one score for each client."""
    if scores is None:
        return None
    name, m = type(filter).__name__, len(seen.clients)
    if not isinstance(scores, Scores):
        raise InputError(f"{name}.score returned {type(scores).__name__}, expected Scores or None.")
    if np.shape(scores.values) != (m,) or scores.clients != seen.clients:
        raise InputError(
            f"{name}.score returned values of shape {np.shape(scores.values)} for {len(scores.clients)} clients. "
            f"It must return shape ({m},), with the clients of the round in the same order (`round_.clients`)."
        )
    return scores


def checked_rows(filter: Filter[Any], rows: object, m: int) -> IntVector:
    """Return the rows that a filter keeps. Raise an error unless they are rows of the round, in rising order."""
    kept = np.asarray(rows)
    whole = kept.ndim == 1 and (kept.size == 0 or kept.dtype.kind in "iu")
    if not whole or np.any(kept < 0) or np.any(kept >= m) or np.any(np.diff(kept) <= 0):
        raise InputError(
            f"{type(filter).__name__}.select returned {rows!r}, expected rows from 0 to {m - 1}, each once and in "
            "rising order, e.g. np.flatnonzero(scores.values < limit)."
        )
    return kept.astype(np.int64, copy=False)


def check_state(caller: str, state: object, kind: type) -> None:
    """Raise an error unless a state is of the type that the filter's `init` returns."""
    if not isinstance(state, kind):
        raise InputError(
            f"{caller} needs a {kind.__name__}, which its `init` returns. Got {type(state).__name__} instead. "
            "Pass the state that the same filter returned, or start with `init`."
        )


def check_keep(caller: str, keep: float | None) -> None:
    """Raise an error unless `keep` is None, a positive number of clients, or a fraction in (0, 1]."""
    if keep is None:
        return
    if isinstance(keep, int | np.integer) and not isinstance(keep, bool):
        check_number(caller, "keep", keep, 1, whole=True)
    elif not isinstance(keep, float | np.floating) or not 0 < keep <= 1:
        raise InputError(
            f"The `keep` parameter of {caller} must be a number of clients (an int of at least 1) or a fraction "
            f"of the round (a float above 0 and up to 1). Got {keep!r} instead."
        )


def lowest(scores: Scores, keep: float) -> IntVector:
    """Return the rows with the `keep` lowest scores. Equal scores are ordered by client id."""
    m = len(scores.clients)
    k = resolve_count(keep, m)
    if k > m:
        log.warning(
            "asked to keep %d clients, but only %d clients of the round can be used: no client is dropped", k, m
        )
    rank = np.argsort(by_name(scores.clients))
    values = np.where(np.isnan(scores.values), np.inf, scores.values)
    return np.sort(np.lexsort((rank, values))[:k]).astype(np.int64)


def draw_seed(rng: np.random.Generator | None) -> int:
    """Draw the secret seed of a filter. All random numbers of the filter follow from this seed."""
    generator = np.random.default_rng() if rng is None else rng
    return int(generator.integers(0, 2**63))
