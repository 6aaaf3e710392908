r"""Clients that point against the others, round after round.

The layers before the last one learn features that all classes share. So honest clients pull them in similar
directions, even if their data differ: the cosine of an honest client's update with the sum of the others' updates
is positive, apart from noise. A client below zero turns its update round, or bends it away from the others. This
is seen in small federations, too, where a few attackers are too few to form a camp. The last layer does not show
it: there, honest clients with different classes do point against each other.

With unit updates :math:`v_j` and the set S of kept clients, the number of client c is

.. math:: x_c = \cos\Bigl(v_c,\ \sum_{j \in S \setminus c} v_j + \lambda |S|\, r\Bigr),

where r is the direction of the server's own step, if it makes one. A client's own update is left out of the sum.
Otherwise it would agree with itself, and in a round of ten clients this hides an attacker. The numbers are averaged
over rounds, weighted by how far the clients of the round agree, since late in training there is only noise.

Attackers move the sum. So the clients with the lowest averages are left out first, and the sum is computed anew. If
the server makes a step, this is done twice. First the step has the most weight, so that even a majority of
attackers does not move the sum far. Then, if the clients that are left go along with the server, they are compared
with each other, which is more exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.filters.camps.averages import ClientAverages
from flanders.filters.camps.directions import mean_cosine_within
from flanders.round import ClientId

AGAINST_CLIENTS = -0.15
"""A client with a lower average points against the others.

In 24 honest federations of 10 to 30 clients on digits, no client was below -0.11 in the first twelve rounds.
"""
AGAINST_SERVER = -0.1
"""The same next to the server, whose step is a steadier reference than the sum of a few clients."""
WEIGHT_OF_SERVER = 3.0
"""The server's step counts as much as this many times all kept clients (lambda). Even a majority of attackers can
then hardly turn the sum."""
FAIR = 0.4
"""The clients' sum is a fair reference if its cosine with the server's step is above this.

With honest clients it was above this in nine of ten rounds, with a majority of attackers mostly below 0.3.
"""
PRIOR = 0.01
"""The weight of a zero that is averaged in. A round in which two clients have a mean cosine of 0.1 weighs as much.
One round with less in common is not enough to drop a client: it is mostly noise."""
FEWEST = 5
"""Fewer clients are not compared: the sum of three others says too little."""
LEAST_LEFT = 0.1
"""With a server's step, clients are left out until this share of the round is left."""
AT_ONCE = 0.25
"""The share of the opposing clients that is left out before the sum is computed anew: one by one would take long in
large rounds."""


@dataclass(frozen=True, eq=False)
class Opposing:
    """Which clients point against the others, and how far."""

    rows: BoolVector
    averages: FloatVector
    """For each opposing client, its average cosine with the others; zero for the other clients."""
    limits: FloatVector
    """For each opposing client, the limit that its average is below."""


def cosines_with_rest(
    cosines: FloatMatrix, rows: BoolVector, server: FloatVector | None = None, weight: float = 0.0
) -> FloatVector:
    """Return the cosine of each client with the sum of the others among these rows.

    Parameters
    ----------
    cosines
        `(m, m)`: the cosines of the updates with each other.
    rows
        The clients whose updates are added up. A client's own update is left out.
    server
        `(m,)`: the cosines with the server's step.
    weight
        How much the server's step counts, as a multiple of all these rows together.

    Examples
    --------
    >>> cosines = np.array([[1.0, 0.5, -0.5], [0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]])
    >>> cosines_with_rest(cosines, np.ones(3, dtype=bool)).round(2)
    array([ 0.  ,  0.  , -0.58])
    """
    own = rows.astype(float)
    along = cosines @ own
    squares = own @ along - 2.0 * own * along + own
    products = along - own
    if server is not None:
        times = weight * own.sum()
        squares = squares + 2.0 * times * (own @ server - own * server) + times**2
        products = products + times * server
    return np.asarray(products / np.sqrt(np.maximum(squares, 1e-9)))


def measure_opposition(
    cosines: FloatMatrix, server: FloatVector | None, rows: BoolVector
) -> tuple[FloatMatrix, FloatVector]:
    """Return the numbers of a round and their weights: next to the others and, if it made a step, to the server.

    A weight is the square of a mean cosine: of two clients, and of a client and the server. Only clients with a
    positive number count for it. Otherwise attackers could make it small.
    """
    numbers = cosines_with_rest(cosines, rows)
    found = [(numbers, mean_cosine_within(cosines, rows & (numbers > 0)))]
    if server is not None:
        numbers = cosines_with_rest(cosines, rows, server, WEIGHT_OF_SERVER)
        along = server[rows & (numbers > 0)]
        found.append((numbers, float(along.mean()) if along.size else 0.0))
    return np.column_stack([numbers for numbers, _ in found]), np.array([max(0.0, mean) ** 2 for _, mean in found])


def opposing_rows(
    cosines: FloatMatrix,
    rows: BoolVector,
    clients: tuple[ClientId, ...],
    known: ClientAverages,
    server: FloatVector | None = None,
) -> Opposing:
    """Return which of these rows point against the others.

    `cosines` and `server` are those of the layers before the last one. Without a server's step, opposing clients
    must be fewer than half of the rows, since nothing tells which of two halves is right.
    """
    m, left = len(clients), rows.copy()
    averages, limits = np.zeros(m), np.zeros(m)
    stages = [(0, AGAINST_CLIENTS)] if server is None else [(1, AGAINST_SERVER), (0, AGAINST_CLIENTS)]
    for column, limit in stages:
        if server is not None and column == 0 and not go_along(cosines, left, server):
            break
        while left.sum() >= FEWEST:
            numbers, weights = measure_opposition(cosines, server, left)
            values = known.of(clients, numbers, weights, PRIOR)[:, column]
            below = np.flatnonzero(left & (values < limit))
            if not below.size or (server is not None and left.sum() <= LEAST_LEFT * m):
                break
            lowest = below[np.argsort(values[below], kind="stable")][: int(np.ceil(AT_ONCE * below.size))]
            left[lowest] = False
            averages[lowest], limits[lowest] = values[lowest], limit
    found = rows & ~left
    if server is None and 2 * found.sum() >= rows.sum():
        found = np.zeros(m, dtype=bool)
    return Opposing(found, averages, limits)


def go_along(cosines: FloatMatrix, rows: BoolVector, server: FloatVector) -> bool:
    """Tell whether the sum of these clients' updates clearly goes along with the server's step."""
    own = rows.astype(float)
    return bool(own @ server > FAIR * np.sqrt(max(float(own @ cosines @ own), 1e-12)))
