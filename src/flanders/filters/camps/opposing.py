r"""Finds clients whose updates point against those of the others, round after round.

`Guard` and `Camps` use this test in small rounds. There, attackers are often too few to form a camp, which is a
group that differs clearly from the other clients.

The test looks at the layers before the last one. These layers learn features that all classes share. So honest
clients change them in similar directions, even if their data differ. Apart from noise, the cosine of an honest
client's update with the sum of the others' updates is positive. If it is negative, the client has reversed its
update or turned it away from the others. In the last layer, honest clients with different classes do point against
each other. So the last layer is not used.

With unit updates :math:`v_j` and the set S of kept clients, the cosine of client c is

.. math:: x_c = \cos\Bigl(v_c,\ \sum_{j \in S \setminus c} v_j + \lambda |S|\, r\Bigr).

Here r is the unit vector of the server's own step, which the server may train on its own examples. :math:`\lambda`
is `WEIGHT_OF_SERVER`, or zero without such a step. A client's own update is left out of the sum. Otherwise, in a
round of ten clients, it would make the cosine of an attacker too high. The cosines of a client are averaged over
its rounds. Rounds in which the clients have little in common weigh little, since late in training updates are
mostly noise.

Attackers change the sum. So clients whose average is below a limit are left out of it, a few at a time. The clients
with the lowest averages are left out first, and the sum is computed again. This goes on until no client is below
the limit.

If the server makes a step, the clients that are left are tested again, in two stages. In the first stage the step
has so much weight that even a majority of attackers hardly changes the sum. The second stage is made only if the
sum of the clients that are left points in the direction of the server's step. It compares these clients with each
other, without the server's step. This is more exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector
from flanders.client_ids import ClientId
from flanders.filters.camps.averages import ClientAverages
from flanders.filters.camps.directions import mean_cosine_within
from flanders.filters.camps.splitting import evidence_of
from flanders.filters.camps.traits import LEAST_SPREAD_OF_COSINES
from flanders.state import saveable

AGAINST_CLIENTS = -0.15
"""A client points against the others if its average cosine is below this.

In 24 honest federations of 10 to 30 clients on digits, no client was below -0.11 in the first twelve rounds.
"""
AGAINST_SERVER = -0.1
"""If the server's step is in the sum, this limit is used instead of `AGAINST_CLIENTS`. The sum then varies less
than the sum of a few clients."""
WEIGHT_OF_SERVER = 3.0
"""The server's step weighs this many times as much as all kept clients together. Even a majority of attackers then
hardly changes the direction of the sum."""
FAIR = 0.4
"""The second stage is made if the cosine of the clients' sum with the server's step is above this.

With honest clients this cosine was higher in nine of ten rounds. With a majority of attackers it was mostly below
0.3.
"""
LIKELY, CLEAR = 0.0, 3.0
"""The evidence, in nats, that is needed to say that the clients found and the other clients are two camps; see
`splitting`. `CLEAR` is for models with convolutions or other layers than fully connected ones.

In such models, honest clients with few classes may point against each other in the first rounds, since each class
pulls the filters of a convolution in its own direction. But their averages run from negative to positive without a
gap. With a small convolutional network on digits, 98% of the rounds without an attack gave less than 3 nats even if
a client was below the limit.
"""
PRIOR = 0.003
"""Each average includes a zero of this weight, so that a round that is mostly noise does not suffice to drop a
client.

The weight of a round is the square of the mean cosine between its clients. So the zero weighs as much as a round
with a mean cosine of 0.055. A round with a lower mean is mostly noise.
"""
FEWEST = 5
"""Rounds with fewer clients are not tested: each client would be compared with at most three others."""
MOST = 40
"""Rounds with more clients are not tested. In them, attackers are numerous enough to form a camp.

In rounds of 100 clients the test also did harm. Where attackers changed from round to round and were not found,
four fifths of the clients that the test found were honest.
"""
LEAST_LEFT = 0.1
"""If the server makes a step, no more clients are left out once at most this share of the round is left."""
AT_ONCE = 0.25
"""This share of the clients below the limit is left out before the sum is computed again.

The clients with the lowest averages are left out first. The others below the limit may be honest, since attackers
change the sum. With the new sum, honest clients may be above the limit.
"""


@dataclass(frozen=True, eq=False)
class Opposing:
    """The clients of a round that point against the others."""

    rows: BoolVector
    """`(m,)`: which clients of the round these are."""
    averages: FloatVector
    """`(m,)`: the average cosine of each of these clients with the sum of the others. Other entries are unused."""
    limits: FloatVector
    """`(m,)`: for each of these clients, the limit that its average is below. Other entries are unused."""
    evidence: float = 0.0
    """The evidence that these clients and the other clients form two camps, in nats; see `splitting`."""


@saveable
@dataclass(frozen=True, eq=False)
class Opposition:
    """What is remembered for this test: each client's average cosine with the sum of the others."""

    averages: ClientAverages = field(default_factory=ClientAverages)
    """For each client: its average cosine with the sum of the others. If the server makes steps, there is a second
    average, with the sum that includes the server's step, and a third one, with the server's step alone."""
    weights: tuple[float, ...] = ()
    """The weight of the last round in each of these averages.

    Until it is decided which clients of a new round are kept, the new round weighs at most this much. Clients
    have less and less in common as training goes on, so a higher weight may come from attackers.
    """

    def of(self, clients: tuple[ClientId, ...], numbers: FloatMatrix, weights: FloatVector) -> FloatMatrix:
        """Return the average cosines of these clients, including a round that is not decided yet.

        `numbers` are the cosines in this round, and `weights` the weights of this round, as `measure_opposition`
        returns them.
        """
        known = len(self.weights) == len(weights)
        return self.averages.of(clients, numbers, np.minimum(weights, self.weights) if known else weights, PRIOR)

    def after(
        self, cosines: FloatMatrix, server: FloatVector | None, clients: tuple[ClientId, ...], kept: BoolVector
    ) -> Opposition:
        """Return what is remembered after a round in which the rows `kept` were kept."""
        if kept.sum() < 2:
            return self
        numbers, weights = measure_opposition(cosines, server, kept, decided=True)
        return Opposition(self.averages.with_round(clients, numbers, weights), tuple(weights.tolist()))


def cosines_with_rest(
    cosines: FloatMatrix, rows: BoolVector, server: FloatVector | None = None, weight: float = 0.0
) -> FloatVector:
    """Return the cosine of each client's update with the sum of the others' unit updates.

    Parameters
    ----------
    cosines
        `(m, m)`: the cosines of the updates with each other.
    rows
        The clients whose unit updates are added up. A client's own update is left out.
    server
        `(m,)`: the cosines of the updates with the server's step. By default the server makes no step.
    weight
        The weight of the server's step in the sum, as a multiple of the number of clients in `rows`.

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
    """Return each client's cosine with the sum of the others, `(m, k)`, and the weights of the round, `(k,)`.

    Usually k is 1. If the server made a step, k is 3. The second column then has the cosines with the sum that
    includes the step, and the third column has the cosines with the step alone. The first weight is the square of
    the mean cosine between two clients. The second weight is the square of the mean cosine of a client with the
    server's step. If it is `decided` that these rows are kept, the means are taken over all of them. Otherwise they
    are taken over the rows whose cosine with the sum is positive, so that attackers cannot make the weights small.
    The third weight is always 1.
    """
    numbers = cosines_with_rest(cosines, rows)
    found = [(numbers, mean_cosine_within(cosines, rows & (decided | (numbers > 0))))]
    if server is not None:
        numbers = cosines_with_rest(cosines, rows, server, WEIGHT_OF_SERVER)
        along = server[rows & (decided | (numbers > 0))]
        found.append((numbers, float(along.mean()) if along.size else 0.0))
        found.append((server, 1.0))
    return np.column_stack([numbers for numbers, _ in found]), np.array([max(0.0, mean) ** 2 for _, mean in found])


def opposing_rows(
    cosines: FloatMatrix,
    rows: BoolVector,
    clients: tuple[ClientId, ...],
    known: Opposition,
    server: FloatVector | None = None,
    *,
    by_server: bool = False,
) -> Opposing:
    """Return which of these rows point against the others.

    `cosines`, `(m, m)`, are those between the clients, and `server`, `(m,)`, those with the server's step, both in
    the layers before the last one. `known` is what earlier rounds have shown.

    If `by_server` is true, the clients are compared with the server's step, too. A client that points against this
    step, but not against the clients that are left, is not returned.

    If `by_server` is false, the clients are only compared with each other. If at least half of the rows are found,
    none is returned, since nothing tells which half is right. None is returned either if the clients found go along
    with the server's step more than the clients that are left.
    """
    m, left = len(clients), rows.copy()
    averages, limits = np.zeros(m), np.zeros(m)
    if m > MOST:
        return Opposing(np.zeros(m, dtype=bool), averages, limits)

    def averages_now(rest: BoolVector) -> FloatMatrix:
        return known.of(clients, *measure_opposition(cosines, server, rest, decided=False))

    stages = [(1, AGAINST_SERVER), (0, AGAINST_CLIENTS)] if by_server else [(0, AGAINST_CLIENTS)]
    for column, limit in stages:
        if by_server and column == 0 and not go_along(cosines, left, server):
            break
        while left.sum() >= FEWEST:
            values = averages_now(left)[:, column]
            below = np.flatnonzero(left & (values < limit))
            if not below.size or (by_server and left.sum() <= LEAST_LEFT * m):
                break
            lowest = below[np.argsort(values[below], kind="stable")][: int(np.ceil(AT_ONCE * below.size))]
            left[lowest] = False
            averages[lowest], limits[lowest] = values[lowest], limit
    if by_server and go_along(cosines, left, server):
        left |= rows & (averages_now(left)[:, 0] > 0)
    found = rows & ~left
    wrong_half = not by_server and 2 * found.sum() >= rows.sum()
    if not found.any() or wrong_half or (server is not None and server[found].mean() > server[left].mean()):
        return Opposing(np.zeros(m, dtype=bool), averages, limits)
    both = averages_now(left)[rows].T
    evidence = max(evidence_of(values, found[rows], LEAST_SPREAD_OF_COSINES) for values in both[:2])
    return Opposing(found, averages, limits, evidence)


def go_along(cosines: FloatMatrix, rows: BoolVector, server: FloatVector | None) -> bool:
    """Whether the cosine of the sum of these clients' unit updates with the server's step is above `FAIR`.

    Without such a step the result is false.
    """
    own = rows.astype(float)
    return server is not None and bool(own @ server > FAIR * np.sqrt(max(float(own @ cosines @ own), 1e-12)))
