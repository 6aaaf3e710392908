"""The yardsticks: keep everyone, distance to the global model, distance to one's own last model.

A filter that does not beat these has not earned its complexity; they belong in every table.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, copied
from flanders.filters.filter import Filter, Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.products import squared_norms
from flanders.round import ClientId, Round, check_continued


@dataclass(frozen=True)
class KeepAll(Stateless):
    """Keep every client: no defence, the baseline of every comparison."""

    def score(self, state: None, round_: Round) -> Scores | None:
        """Find nobody abnormal."""
        return Scores(round_.clients, np.zeros(len(round_.clients)))

    def select(self, scores: Scores) -> IntVector:
        """Keep everyone."""
        return np.arange(len(scores.clients))


@dataclass(frozen=True)
class Oracle(Stateless):
    """Drop exactly the clients that it is told to: the best that any filter could do.

    A simulation tells it each round who is malicious, which no server knows.

    Parameters
    ----------
    malicious
        The ids of the clients to drop.

    Examples
    --------
    >>> told = Oracle(malicious=(1,))
    >>> told.select(told.score(None, Round(np.eye(3))))
    array([0, 2])
    """

    malicious: tuple[ClientId, ...] = ()

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score who is to be dropped 1, and everybody else 0."""
        bad = np.array([c in self.malicious for c in round_.clients])
        return Scores(round_.clients, bad.astype(float), suspects=bad)

    def select(self, scores: Scores) -> IntVector:
        """Keep the others."""
        return np.flatnonzero(scores.values == 0)


@dataclass(frozen=True)
class DistanceToGlobal(Stateless):
    """Keep the clients whose models moved least from the global model: a control without memory.

    Examples
    --------
    >>> control = DistanceToGlobal(keep=2)
    >>> control.select(control.score(None, Round(np.array([[1., 0.], [9., 9.], [0., 2.]]))))
    array([0, 2])
    """

    keep: float = 0.5

    def __post_init__(self) -> None:
        check_keep("DistanceToGlobal", self.keep)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by its squared distance to the global model."""
        return Scores(round_.clients, squared_norms(round_.updates, round_.global_model))

    def select(self, scores: Scores) -> IntVector:
        """Keep the lowest scores."""
        return lowest(scores, self.keep)


@dataclass(frozen=True)
class Persistence(Filter[dict[ClientId, Array]]):
    """Keep the clients whose models are nearest to their own last accepted ones: a control with memory.

    A client that was never accepted is scored by its distance to the global model. There are no
    scores in the first round.
    """

    keep: float = 0.5

    def __post_init__(self) -> None:
        check_keep("Persistence", self.keep)

    def init(self, rng: np.random.Generator | None = None) -> dict[ClientId, Array]:
        """Return an empty memory of models, by client."""
        return {}

    def score(self, state: dict[ClientId, Array], round_: Round) -> Scores | None:
        """Score each client by its squared distance to its last accepted model."""
        if not state:
            return None
        check_continued(round_, next(iter(state.values())))
        last = [state.get(c, round_.global_model) for c in round_.clients]
        xp = array_api_compat.array_namespace(round_.updates)
        return Scores(round_.clients, squared_norms(round_.updates, xp.stack(last)))

    def select(self, scores: Scores) -> IntVector:
        """Keep the lowest scores."""
        return lowest(scores, self.keep)

    def amend(
        self,
        state: dict[ClientId, Array],
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> dict[ClientId, Array]:
        """Remember the models of the clients that were kept."""
        return {**state, **{round_.clients[i]: copied(round_.updates[int(i), :]) for i in kept}}
