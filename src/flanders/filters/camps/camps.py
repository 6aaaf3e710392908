"""The filter `Camps`, which compares the clients of a round with each other, but not with their own past."""

from __future__ import annotations

from dataclasses import dataclass

from flanders.arrays import Array, IntVector
from flanders.filters.camps.guard import Guard, GuardState
from flanders.filters.filter import Scores
from flanders.round import Round


@dataclass(frozen=True)
class Camps(Guard):
    """Drop updates that no training makes, and the wrong one of two camps of clients.

    Two camps are two groups of clients that differ clearly, for example in the direction of their updates. This
    filter works as `Guard` does, and has the same parameters. But it does not compare a client with its own earlier
    updates. It remembers only two things of each client: how much the client's updates pointed in the direction of
    the others' updates, and whether the client was dropped the last time it took part. The server's examples, the
    trusted clients or the majority tell which camp is wrong.

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
        """Return the memory after a round: how much each client pointed in the direction of the others."""
        found = self.evidence_of(state, round_, scores)
        opposition = found.opposition_after(state.opposition, round_.clients, kept)
        directions = found.directions_after(state.directions, round_.clients, kept)
        inputs = found.inputs_after(state.inputs, kept)
        return GuardState(state.round_number + 1, opposition=opposition, directions=directions, inputs=inputs)
