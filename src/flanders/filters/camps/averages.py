"""`ClientAverages`: for each client, the averages of some numbers over all rounds in which the client took part.

`Guard` and `Camps` average cosines with it. Each round has a weight, since some rounds tell more than others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.client_ids import ClientId
from flanders.client_memory import newest_clients
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class ClientAverages:
    """The weighted averages of k numbers for each client, stored as sums.

    Examples
    --------
    >>> known = ClientAverages().with_round(("a", "b"), np.array([[0.5], [-0.1]]), np.array([1.0]))
    >>> known.of(("a", "c"), np.array([[0.1], [0.2]]), np.array([3.0]))      # "c" is new
    array([[0.2],
           [0.2]])
    """

    sums: dict[ClientId, FloatMatrix] = field(default_factory=dict)
    """For each client a `(2, k)` array: the sums of its numbers times their weights, and the sums of the weights.

    The client that took part most recently comes last.
    """

    def of(
        self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector, prior: float = 0.0
    ) -> FloatMatrix:
        """Return the averages of these clients over their earlier rounds and this round, `(m, k)`.

        Parameters
        ----------
        clients
            The m clients of this round.
        now
            `(m, k)`: their numbers in this round.
        weights
            `(k,)`: the weight of this round, for each of the k numbers.
        prior
            Each average includes one more number: a zero with this weight. It pulls averages over few rounds
            towards zero. By default its weight is zero.
        """
        nothing = np.zeros((2, now.shape[1]))
        past = [self.sums.get(client, nothing) for client in clients]
        sums = np.array([own if own.shape == nothing.shape else nothing for own in past])
        total = sums[:, 1] + weights + prior
        return np.where(total > 0, (sums[:, 0] + now * weights) / np.where(total > 0, total, 1.0), now)

    def with_round(self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector) -> ClientAverages:
        """Return the averages after one more round. The arguments are those of `of`."""
        nothing, after = np.zeros((2, now.shape[1])), {}
        for row, client in enumerate(clients):
            before = self.sums.get(client, nothing)
            before = before if before.shape == nothing.shape else nothing
            after[client] = before + np.array([now[row] * weights, weights])
        return ClientAverages(newest_clients(self.sums, after, len(clients)))
