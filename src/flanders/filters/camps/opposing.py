r"""Clients that point against the others, round after round.

The layers before the last one learn features that all classes share. So honest clients pull them in similar
directions, even if their data differ: the cosine of an honest client's update with the sum of the others' updates
is positive, apart from noise. A client below zero reverses its update, or bends it away from the others. This is
seen in small rounds, too, in which a few attackers are too few to form a camp. The last layer does not show it:
there, honest clients with different classes do point against each other.

With unit updates :math:`v_j` and the set S of kept clients, the cosine of client c is

.. math:: x_c = \cos\Bigl(v_c,\ \sum_{j \in S \setminus c} v_j + \lambda |S|\, r\Bigr),

where r is the direction of the server's own step, if it makes one, and :math:`\lambda` is `WEIGHT_OF_SERVER`. A
client's own update is left out of the sum. Otherwise it would agree with itself, and in a round of ten clients this
hides an attacker. The cosines of a client are averaged over its rounds. Rounds in which the clients agree little
weigh little: late in training their updates are mostly noise.

Attackers move the sum. So the clients with the lowest averages are left out first, and the sum is computed anew. If
the server makes a step, this is done twice. First the step has the most weight, so that even a majority of
attackers does not move the sum far. Then, if the clients that are left go along with the server, they are compared
with each other, which is more exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.filters.camps.averages import ClientAverages
from flanders.filters.camps.directions import mean_cosine_within
from flanders.round import ClientId
from flanders.state import saveable

AGAINST_CLIENTS = -0.15
"""A client with a lower average points against the others.

In 24 honest federations of 10 to 30 clients on digits, no client was below -0.11 in the first twelve rounds.
"""
AGAINST_SERVER = -0.1
"""The same limit if clients are compared with the server, whose step is a steadier reference than a few clients."""
WEIGHT_OF_SERVER = 3.0
"""The server's step weighs this many times as much as all kept clients together. Even a majority of attackers can
then hardly turn the sum."""
FAIR = 0.4
"""The clients' sum is a fair reference if its cosine with the server's step is above this.

With honest clients it was above this in nine of ten rounds, with a majority of attackers mostly below 0.3.
"""
PRIOR = 0.003
"""Each average starts with a zero of this weight. A round weighs as much as the square of the mean cosine between
its clients, so this is one round with a mean cosine of 0.055. A round with less in common is mostly noise, and does
not suffice to drop a client."""
FEWEST = 5
"""Rounds with fewer clients are skipped: each client would be compared with at most three others."""
MOST = 40
"""Rounds with more clients are skipped: there, attackers are many enough to form a camp.

Where attackers took turns in rounds of 100 clients and were not found, four fifths of the clients that this look
found were honest.
"""
LEAST_LEFT = 0.1
"""With a server's step, clients are left out until this share of the round is left."""
AT_ONCE = 0.25
"""The share of the opposing clients that is left out before the sum is computed anew. Those with the lowest
averages go first: attackers move the sum, and some of the others may only seem to oppose it."""


@dataclass(frozen=True, eq=False)
class Opposing:
    """Which clients point against the others, and how far."""

    rows: BoolVector
    averages: FloatVector
    """For each opposing client, its average cosine with the others; zero for the other clients."""
    limits: FloatVector
    """For each opposing client, the limit that its average is below."""


@saveable
@dataclass(frozen=True, eq=False)
class Opposition:
    """What is remembered: how far each client went along with the sum of the others."""

    averages: ClientAverages = field(default_factory=ClientAverages)
    """The average cosines of each client: with the others and, if the server makes steps, with these as well."""
    weights: tuple[float, ...] = ()
    """The weights of the last round. The next round does not weigh more before its clients are decided on: clients
    agree less and less as training goes on."""

    def of(self, clients: tuple[ClientId, ...], numbers: FloatMatrix, weights: FloatVector) -> FloatMatrix:
        """Return the average cosines with a round that is not decided yet."""
        known = len(self.weights) == len(weights)
        return self.averages.of(clients, numbers, np.minimum(weights, self.weights) if known else weights, PRIOR)

    def after(
        self, cosines: FloatMatrix, server: FloatVector | None, clients: tuple[ClientId, ...], kept: BoolVector
    ) -> Opposition:
        """Return what is remembered after a round of which these rows were kept."""
        if kept.sum() < 2:
            return self
        numbers, weights = measure_opposition(cosines, server, kept, decided=True)
        return Opposition(self.averages.with_round(clients, numbers, weights), tuple(weights.tolist()))


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
    cosines: FloatMatrix, server: FloatVector | None, rows: BoolVector, *, decided: bool
) -> tuple[FloatMatrix, FloatVector]:
    """Return each client's cosine with the sum of the others, and the weight of the round.

    If the server made a step, there is a second column: the cosines with the sum that has the step in it. A weight
    is the square of a mean cosine: of two clients, and of a client and the server. It is the mean over all these
    rows once it is `decided` that they are kept. Before that it is the mean over clients with a positive cosine.
    Otherwise attackers could make it small.
    """
    numbers = cosines_with_rest(cosines, rows)
    found = [(numbers, mean_cosine_within(cosines, rows & (decided | (numbers > 0))))]
    if server is not None:
        numbers = cosines_with_rest(cosines, rows, server, WEIGHT_OF_SERVER)
        along = server[rows & (decided | (numbers > 0))]
        found.append((numbers, float(along.mean()) if along.size else 0.0))
    return np.column_stack([numbers for numbers, _ in found]), np.array([max(0.0, mean) ** 2 for _, mean in found])


def opposing_rows(
    cosines: FloatMatrix,
    rows: BoolVector,
    clients: tuple[ClientId, ...],
    known: Opposition,
    server: FloatVector | None = None,
) -> Opposing:
    """Return which of these rows point against the others.

    `cosines` and `server` are those of the layers before the last one. Without a server's step, opposing clients
    must be fewer than half of the rows, since nothing tells which of two halves is right.
    """
    m, left = len(clients), rows.copy()
    averages, limits = np.zeros(m), np.zeros(m)
    if m > MOST:
        return Opposing(np.zeros(m, dtype=bool), averages, limits)
    stages = [(0, AGAINST_CLIENTS)] if server is None else [(1, AGAINST_SERVER), (0, AGAINST_CLIENTS)]
    for column, limit in stages:
        if server is not None and column == 0 and not go_along(cosines, left, server):
            break
        while left.sum() >= FEWEST:
            numbers, weights = measure_opposition(cosines, server, left, decided=False)
            values = known.of(clients, numbers, weights)[:, column]
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
