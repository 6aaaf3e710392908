"""The controls `KeepAll`, `Oracle`, `DistanceToGlobal` and `Persistence`.

A control is a simple filter. Experiments compare the other filters with the controls.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, copied
from flanders.client_ids import ClientId
from flanders.client_memory import newest_clients
from flanders.filters.filter import Filter, Scores, check_keep, check_state, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.products import squared_norms
from flanders.round import Round, check_continued
from flanders.state import saveable


@dataclass(frozen=True)
class KeepAll(Stateless):
    """Keep every client: no defence, the baseline of every comparison.

    Examples
    --------
    >>> from flanders import Defense
    >>> Defense(KeepAll())(np.array([[1., 0.], [900., 900.]])).kept
    array([0, 1])

    References
    ----------
    This package.
    """

    def score(self, state: None, round_: Round) -> Scores | None:
        """Return a score of zero for every client."""
        return Scores(round_.clients, np.zeros(len(round_.clients)))

    def select(self, scores: Scores) -> IntVector:
        """Return all rows."""
        return np.arange(len(scores.clients))


@dataclass(frozen=True)
class Oracle(Stateless):
    """Drop exactly the clients that it is told to drop: the best that any filter could do.

    In each round, a simulation tells this filter which clients are malicious. A real server does not know this.

    Parameters
    ----------
    malicious
        The ids of the clients to drop.

    Examples
    --------
    >>> told = Oracle(malicious=(1,))
    >>> told.select(told.score(None, Round(np.eye(3))))
    array([0, 2])

    References
    ----------
    This package.
    """

    malicious: tuple[ClientId, ...] = ()

    def score(self, state: None, round_: Round) -> Scores | None:
        """Return a score of 1 for the clients to drop, and of 0 for all others."""
        bad = np.array([c in self.malicious for c in round_.clients])
        return Scores(round_.clients, bad.astype(float), suspects=bad)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with a score of 0."""
        return np.flatnonzero(scores.values == 0)


@dataclass(frozen=True)
class DistanceToGlobal(Stateless):
    r"""Keep the clients whose models moved least from the global model: a control without memory.

    .. math:: \text{score}_c = \|\theta_c - g\|^2

    Here :math:`\theta_c` is the model of client c, and g is the global model.

    Parameters
    ----------
    keep
        How many clients to keep: a number, or a fraction of the round.

    Examples
    --------
    >>> control = DistanceToGlobal(keep=2)
    >>> control.select(control.score(None, Round(np.array([[1., 0.], [9., 9.], [0., 2.]]))))
    array([0, 2])

    References
    ----------
    This package.
    """

    keep: float = 0.5

    def __post_init__(self) -> None:
        check_keep("DistanceToGlobal", self.keep)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by the squared distance of its model to the global model."""
        return Scores(round_.clients, squared_norms(round_.updates, round_.global_model))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the lowest scores."""
        return lowest(scores, self.keep)


@saveable
@dataclass(frozen=True, eq=False)
class PersistenceState:
    """The memory of `Persistence`."""

    models: dict[ClientId, Array] = field(default_factory=dict)
    """For each client: its model in the last round in which the client was kept."""


@dataclass(frozen=True)
class Persistence(Filter[PersistenceState]):
    r"""Keep the clients whose models are nearest to their own last kept models: a control with memory.

    .. math:: \text{score}_c = \|\theta_c^{(t)} - \theta_c^{(s)}\|^2, \quad
              s \text{: the last round in which } c \text{ was kept}

    Here :math:`\theta_c^{(t)}` is the model of client c in round t. If the client was never kept, it is scored by
    the distance of its model to the global model. There are no scores in the first round.

    Parameters
    ----------
    keep
        How many clients to keep: a number, or a fraction of the round.

    Examples
    --------
    >>> from flanders import Defense
    >>> defense = Defense(Persistence(keep=2))
    >>> _ = defense(np.array([[1., 0.], [5., 5.], [0., 2.]]))
    >>> defense(np.array([[1., 1.], [5., 5.], [9., 9.]])).dropped
    (2,)

    References
    ----------
    This package.
    """

    keep: float = 0.5

    def __post_init__(self) -> None:
        check_keep("Persistence", self.keep)

    def init(self, rng: np.random.Generator | None = None) -> PersistenceState:
        """Return an empty memory."""
        return PersistenceState()

    def score(self, state: PersistenceState, round_: Round) -> Scores | None:
        """Score each client by the squared distance of its model to its last kept model."""
        check_state("Persistence", state, PersistenceState)
        if not state.models:
            return None
        check_continued(round_, next(iter(state.models.values())))
        last = [state.models.get(c, round_.global_model) for c in round_.clients]
        xp = array_api_compat.array_namespace(round_.updates)
        return Scores(round_.clients, squared_norms(round_.updates, xp.stack(last)))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the lowest scores."""
        return lowest(scores, self.keep)

    def amend(
        self,
        state: PersistenceState,
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> PersistenceState:
        """Return the memory after a round, with the models of the kept clients."""
        check_state("Persistence", state, PersistenceState)
        new = {round_.clients[i]: copied(round_.updates[int(i), :]) for i in kept}
        return PersistenceState(newest_clients(state.models, new, len(round_.clients)))
