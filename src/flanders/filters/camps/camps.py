"""The filter that compares the clients with each other, not with their own earlier updates."""

from __future__ import annotations

from dataclasses import dataclass

from flanders.arrays import Array, IntVector
from flanders.filters.camps.guard import Guard, GuardState
from flanders.filters.filter import Scores
from flanders.round import Round


@dataclass(frozen=True)
class Camps(Guard):
    """Drop updates that no training makes, and the wrong one of two camps of clients.

    This is `Guard` without the clients' own marks. It remembers how far each client went along with the others,
    and nothing of what the client sent. The judge hears the server's examples, the trusted clients and the
    majority. The parameters are those of `Guard`.

    Examples
    --------
    >>> import numpy as np
    >>> from flanders import Defense
    >>> rng = np.random.default_rng(0)
    >>> models = rng.normal(size=500) + 0.5 * rng.normal(size=(20, 500))
    >>> models[:4] *= -1
    >>> Defense(Camps())(models).dropped
    (0, 1, 2, 3)
    """

    def amend(
        self, state: GuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> GuardState:
        """Remember how far each client went along with the others."""
        found = self.evidence_of(state, round_, scores)
        opposition = found.opposition_after(state.opposition, round_.clients, kept)
        directions = found.directions_after(state.directions, round_.clients, kept)
        return GuardState(state.round_number + 1, opposition=opposition, directions=directions)
