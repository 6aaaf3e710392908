r"""How far clients trust each other: they vote, and the votes of trusted clients count more.

The updates of two honest clients point the same way in part, or they have nothing in common. They rarely point
against each other. A client that turns its update round, or bends it against the others, points against the clients
whose data are like its own. So the cosine :math:`c_{ij}` of two updates is the vote of client j for client i (above
zero) or against it (below zero).

At first everybody is trusted, :math:`x_i = 1`. Then the trust in each client is computed anew from the votes of the
others, weighted by the trust in them,

.. math:: x_i = \frac{\sum_j c_{ij}^3\, x_j}{\sum_j |c_{ij}|^3\, |x_j|} \in [-1, 1],

until it settles. The cubes give the most weight to the clients that have the most to do with client i, for or
against it. Clients that hold other classes have little to say about it. In the end honest clients have a
trust near 1. Clients that point against them have a trust near -1, even if they have bent the mean of the round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.round import ClientId
from flanders.state import saveable

ROUNDS = 20
"""How often trust is computed anew: it settles within a few times."""
NEARLY_ALL = 0.9
"""Clients vote only in rounds with at least this share of all clients that ever took part."""
FIRST_ROUND = 3
"""Clients vote from this round on: the first two rounds show whether the same clients take part each time."""
MOST = 40
"""If more clients than this have taken part, the server included, there is no vote: in larger federations camps are
found without votes, and the pairs would need much memory."""


def trust_by_votes(cosines: FloatMatrix, server: FloatVector | None = None) -> FloatVector:
    """Return the trust in each client, from -1 to 1.

    `server` are the cosines of the updates with the server's own step. If they are given, only the server is
    trusted at first, and all trust in clients comes from it.

    Examples
    --------
    >>> trust_by_votes(np.array([[1.0, 0.6, -0.5], [0.6, 1.0, -0.6], [-0.5, -0.6, 1.0]]))
    array([ 1.,  1., -1.])
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


def mean_agreement(cosines: FloatMatrix) -> float:
    """Return the mean cosine of two updates of a round, or 0 if it is below zero.

    Updates of clients that are not trusted are turned round first, so that attackers do not cancel out the others.
    """
    m, sign = len(cosines), np.sign(trust_by_votes(cosines))
    return max(0.0, float(sign @ cosines @ sign - m) / max(m * (m - 1), 1))


@saveable
@dataclass(frozen=True, eq=False)
class Pairs:
    """The mean cosine of every two clients over the rounds in which both took part."""

    clients: tuple[ClientId, ...] = ()
    """The K clients that took part so far."""
    means: FloatMatrix | None = None
    """`(K, K)`: the mean cosines; None before the first round."""
    weights: FloatMatrix | None = None
    """`(K, K)`: the sum of the weights of the rounds behind each mean."""
    rounds: int = 0
    """How many rounds it has seen."""

    def with_round(self, clients: tuple[ClientId, ...], cosines: FloatMatrix) -> Pairs:
        """Return the means with one more round. Once more than `MOST` clients have taken part, no means are kept
        any more.

        The weight of a round is the square of its mean agreement. Clients agree less and less as training goes on,
        and in the end their cosines are almost only noise. With these weights late rounds do not hide what early
        rounds have shown.
        """
        known = set(self.clients)
        everyone = (*self.clients, *(client for client in clients if client not in known))
        if len(everyone) > MOST:
            return Pairs(everyone[: MOST + 1])  # one more than may vote: no vote in later rounds either
        k, old = len(everyone), len(self.clients)
        means, weights = np.zeros((k, k)), np.full((k, k), 1e-12)
        if self.means is not None and self.weights is not None:
            means[:old, :old], weights[:old, :old] = self.means, self.weights
        row_of = {client: row for row, client in enumerate(everyone)}
        at = np.ix_(rows := np.array([row_of[client] for client in clients]), rows)
        weight = mean_agreement(cosines) ** 2
        weights[at] += weight
        means[at] += (cosines - means[at]) * weight / weights[at]
        return Pairs(everyone, means, weights, self.rounds + 1)

    def of(self, clients: tuple[ClientId, ...]) -> FloatMatrix | None:
        """Return the mean cosines of these clients; None if they do not vote.

        They do not vote in the first rounds, nor if fewer than nine tenths of all clients seen so far take part. In
        that case two clients have rarely met, and a mean over few rounds says little.
        """
        row_of = {client: row for row, client in enumerate(self.clients)}
        if self.means is None or self.rounds < FIRST_ROUND or len(clients) < NEARLY_ALL * len(row_of):
            return None
        rows = np.array([row_of[client] for client in clients])
        return np.asarray(self.means[np.ix_(rows, rows)])
