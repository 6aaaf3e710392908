r"""Who goes with whom: clients vote for each other, and a vote counts as much as its voter is trusted.

Two honest clients send updates that have something in common or nothing; rarely do they go against each other. Whoever
turns its update round, or bends it against the others, goes against those whose data are like its own. With the cosines
:math:`c_{ij}` and everybody trusted at first, the trust in a client is what the others make of it,

.. math:: x_i = \frac{\sum_j c_{ij}^3\, x_j}{\sum_j |c_{ij}|^3\, |x_j|} \in [-1, 1],

over and over again. The cubes let those decide who have most to do with a client, for or against: clients that hold
other classes say little. Honest clients end near 1 and those who go against them near -1, whatever the round's mean is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.round import ClientId
from flanders.state import saveable

ROUNDS = 20
"""How often trust is passed on: it settles within a few rounds."""
NEARLY_ALL = 0.9
"""Clients vote if a round has this share of all that ever took part."""
MOST = 40
"""In rounds of more clients nobody votes: camps stand out by themselves there, and pairs need much memory."""


def trust(cosines: FloatMatrix, server: FloatVector | None = None) -> FloatVector:
    """Return how far each client is trusted, from -1 to 1.

    `server` are the cosines with the server's own step. If they are given, all trust comes from the server, and not
    from everybody alike.

    >>> trust(np.array([[1.0, 0.6, -0.5, 0.1], [0.6, 1.0, -0.6, 0.2], [-0.5, -0.6, 1.0, -0.1], [0.1, 0.2, -0.1, 1.0]]))
    array([ 1.,  1., -1.,  1.])
    """
    m = len(cosines)
    if server is not None:
        cosines = np.block([[cosines, server[:, None]], [server[None, :], np.ones((1, 1))]])
    votes = cosines**3
    np.fill_diagonal(votes, 0.0)
    weight, x = np.abs(votes), np.ones(len(votes))
    if server is not None:
        x[:m] = 0.0
    for _ in range(ROUNDS):
        x = (votes @ x) / np.maximum(weight @ np.abs(x), 1e-30)
        if server is not None:
            x[m] = 1.0
        else:
            x /= max(float(np.abs(x).max()), 1e-30)
    return np.asarray(x[:m])


def agreement(cosines: FloatMatrix) -> float:
    """Return the mean cosine of a round's updates, those turned round that others vote against; 0 at least."""
    m, sign = len(cosines), np.sign(trust(cosines))
    return max(0.0, float(sign @ cosines @ sign - m) / max(m * (m - 1), 1))


@saveable
@dataclass(frozen=True, eq=False)
class Pairs:
    """The mean cosines of clients that were in the same rounds."""

    clients: tuple[ClientId, ...] = ()
    means: FloatMatrix | None = None
    weights: FloatMatrix | None = None
    """How much the rounds count that two clients were both in."""

    def with_round(self, clients: tuple[ClientId, ...], cosines: FloatMatrix) -> Pairs:
        """Return the means with those of another round; nothing is remembered of very many clients.

        A round counts as much as its clients agree. As training goes on they do less and less, and there is little
        but noise: what early rounds have shown is not forgotten over it.
        """
        everyone = (*self.clients, *(client for client in clients if client not in set(self.clients)))
        if len(everyone) > MOST:
            return Pairs()
        k, known = len(everyone), len(self.clients)
        means, weights = np.zeros((k, k)), np.full((k, k), 1e-12)
        if self.means is not None and self.weights is not None:
            means[:known, :known], weights[:known, :known] = self.means, self.weights
        row_of = {client: row for row, client in enumerate(everyone)}
        at = np.ix_(rows := np.array([row_of[client] for client in clients]), rows)
        weight = agreement(cosines) ** 2
        weights[at] += weight
        means[at] += (cosines - means[at]) * weight / weights[at]
        return replace(self, clients=everyone, means=means, weights=weights)

    def of(self, clients: tuple[ClientId, ...]) -> FloatMatrix | None:
        """Return the mean cosines of these clients; None if many others take part in other rounds.

        Then two of them have rarely met, and a mean over few rounds says little.
        """
        row_of = {client: row for row, client in enumerate(self.clients)}
        if self.means is None or len(clients) < NEARLY_ALL * len(row_of):
            return None
        rows = np.array([row_of[client] for client in clients])
        return np.asarray(self.means[np.ix_(rows, rows)])
