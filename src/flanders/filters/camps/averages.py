"""Averages of some numbers for each client, over all rounds in which it took part."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.round import ClientId
from flanders.state import saveable

ROUNDS_OF_CLIENTS = 10
"""At most this many rounds' worth of clients are remembered, since anybody may make up new client ids."""


@saveable
@dataclass(frozen=True, eq=False)
class ClientAverages:
    """Weighted sums of k numbers for each client. The clients that took part last come last.

    Examples
    --------
    >>> known = ClientAverages().with_round(("a", "b"), np.array([[0.5], [-0.1]]), np.array([1.0]))
    >>> known.of(("a", "c"), np.array([[0.1], [0.2]]), np.array([3.0]))      # "c" is new
    array([[0.2],
           [0.2]])
    """

    sums: dict[ClientId, FloatMatrix] = field(default_factory=dict)
    """`(2, k)`: the sums of the weighted numbers, and the sums of the weights."""

    def of(
        self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector, prior: float = 0.0
    ) -> FloatMatrix:
        """Return the averages over all rounds, this one included.

        Parameters
        ----------
        clients
            The m clients of this round.
        now
            `(m, k)`: their numbers in this round.
        weights
            `(k,)`: the weight of this round.
        prior
            The weight of a zero that is averaged in. With it, clients of which little is known are near zero.
        """
        nothing = np.zeros((2, now.shape[1]))
        past = [self.sums.get(client, nothing) for client in clients]
        sums = np.array([own if own.shape == nothing.shape else nothing for own in past])
        total = sums[:, 1] + weights + prior
        return np.where(total > 0, (sums[:, 0] + now * weights) / np.where(total > 0, total, 1.0), now)

    def with_round(self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector) -> ClientAverages:
        """Return the averages after one more round."""
        sums, nothing = dict(self.sums), np.zeros((2, now.shape[1]))
        for row, client in enumerate(clients):
            before = sums.pop(client, nothing)  # the client moves to the end: it took part last
            before = before if before.shape == nothing.shape else nothing
            sums[client] = before + np.array([now[row] * weights, weights])
        most = max(ROUNDS_OF_CLIENTS * len(clients), len(self.sums))
        for client in list(sums)[:-most]:
            del sums[client]
        return ClientAverages(sums)
