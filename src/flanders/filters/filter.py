"""What a filter is: it scores the clients of a round, selects which to keep, and remembers the round."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, FloatVector, IntVector
from flanders.checks import InputError, check_number, resolve_count
from flanders.round import ClientId, Round, by_name

S = TypeVar("S")
log = logging.getLogger("flanders")


@dataclass(frozen=True, eq=False)
class Scores:
    """How abnormal each client of a round looks: higher is more abnormal, in every filter."""

    clients: tuple[ClientId, ...]
    values: FloatVector
    probabilities: FloatVector | None = None
    """Each client's probability of being malicious; None if the filter cannot tell."""
    suspects: NDArray[np.bool_] | None = None
    """Which clients the filter finds malicious by itself; None if it only compares clients."""
    reasons: tuple[str, ...] = ()
    """For each client, what is suspicious, in words, or "" if nothing is. Only some filters can tell."""
    provisional: bool = False
    """Whether too little is known yet for a reliable decision, so that the fallback aggregator should be used."""
    evidence: object = None
    """What `amend` would otherwise compute again. It is for the filter alone."""


class Filter(ABC, Generic[S]):
    """Decides which clients' models are used, before any aggregation.

    The state is explicit: `init` makes it, `score` reads it, `amend` returns the next one. A new filter is a frozen
    dataclass with these three methods and `select`, and one line in the catalog.
    """

    @abstractmethod
    def init(self, rng: np.random.Generator | None = None) -> S:
        """Return the state before the first round. All random numbers of the filter follow from `rng`."""

    @abstractmethod
    def score(self, state: S, round_: Round) -> Scores | None:
        """Score the clients of the round; None while there is nothing to compare them with."""

    @abstractmethod
    def select(self, scores: Scores) -> IntVector:
        """Return the rows to keep, in rising order."""

    @abstractmethod
    def amend(self, state: S, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None) -> S:
        """Return the state after a round in which the rows `kept` became the new global model `model`.

        If the round's `scores` are passed, nothing that they contain has to be computed again.
        """

    def visible_columns(self, state: S, d: int, layers: Mapping[str, int] | None = None) -> IntVector | None:
        """Return the parameters the filter looks at in every round, if they are fixed and not all.

        This is for studying attackers who know them; a server never tells. `d` is the number of parameters, and
        `layers` are the sizes of the model's layers (see `Round`).
        """
        return None


def check_state(caller: str, state: object, kind: type) -> None:
    """Complain unless a state is of the kind that the filter makes."""
    if not isinstance(state, kind):
        raise InputError(
            f"{caller} goes on from a {kind.__name__}, which its `init` makes. Got {type(state).__name__} instead. "
            "Pass the state that the same filter returned, or start with `init`."
        )


def check_keep(caller: str, keep: float | None) -> None:
    """Complain unless `keep` is a positive number of clients or a fraction in (0, 1]."""
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
    """Return the rows of the `keep` lowest scores, or all there are; ties go by client id, not by row."""
    m = len(scores.clients)
    k = resolve_count(keep, m)
    if k > m:
        log.warning("asked to keep %d clients, but the round has %d that can be used: none is dropped", k, m)
    rank = np.argsort(by_name(scores.clients))
    values = np.where(np.isnan(scores.values), np.inf, scores.values)
    return np.sort(np.lexsort((rank, values))[:k]).astype(np.int64)


def draw_seed(rng: np.random.Generator | None) -> int:
    """Draw the secret from which a filter derives all its later randomness."""
    generator = np.random.default_rng() if rng is None else rng
    return int(generator.integers(0, 2**63))
