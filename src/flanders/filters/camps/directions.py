r"""Measures how much each client's update points in the direction of the others' updates.

`Guard` and `Camps` compare the clients of a round by these numbers, and remember their averages. Here, the update
of a client is the difference between its model and the global model.

The measure is the cosine :math:`x_c` of client c's update with the middle of the round. The middle is the geometric
median of the unit updates. A minority of the clients cannot move it far. There is one cosine for each part of the
model, since an attacker may change the direction of one part only.

One round may not show enough. So the cosines of each client are averaged over all rounds t in which it took part,

.. math:: \bar x_c = \frac{\sum_t a_t^2\, x_{c,t}}{\sum_t a_t^2},

where :math:`a_t` is the mean cosine between two different clients that were kept in round t, or zero if it is
negative. As training goes on, updates become less alike, and in the end their cosines are mostly noise. With these
weights, the noise of late rounds does not hide what early rounds have shown.

The middle is computed without the clients that were dropped the last time they took part. Otherwise dropped
attackers could move the middle towards themselves in the next round, and would be kept again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.client_ids import ClientId
from flanders.filters.camps.averages import ClientAverages
from flanders.state import saveable

STEPS = 30
"""The largest number of steps of Weiszfeld's algorithm, which computes the geometric median. More steps hardly
change the result."""
SETTLED = 1e-4
"""The algorithm computes a weight for each client. It stops earlier if the weights change by less than this in one
step, all together. Smaller changes do not matter."""
LEAST_SHARE = 0.1
"""The middle is usually computed without the clients that were dropped the last time they took part. If less than
this share of the round is left, the middle is computed with all clients, since so few may all be attackers."""
FEWEST = 4
"""The middle is also computed with all clients if fewer than this many are left. The middle of fewer clients lies
too close to each of them."""


@saveable
@dataclass(frozen=True, eq=False)
class Directions:
    """What `Guard` and `Camps` remember of the clients' directions."""

    cosines: ClientAverages = field(default_factory=ClientAverages)
    """For each client: its average cosine with the middle, in each of k parts of the model."""
    dropped: tuple[ClientId, ...] = ()
    """The clients that were dropped the last time they took part."""

    def dropped_rows(self, clients: tuple[ClientId, ...]) -> BoolVector:
        """Return which clients were dropped the last time they took part."""
        dropped = set(self.dropped)
        return np.array([client in dropped for client in clients], dtype=bool)

    def middle_rows(self, clients: tuple[ClientId, ...], rows: BoolVector) -> BoolVector:
        """Return with which of these rows the middle is computed; see `LEAST_SHARE` and `FEWEST`."""
        not_dropped = rows & ~self.dropped_rows(clients)
        return not_dropped if not_dropped.sum() >= max(FEWEST, LEAST_SHARE * len(clients)) else rows

    def averages(self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector) -> FloatMatrix:
        """Return the average cosines of the clients over all rounds, this one included.

        `now`, `(m, k)`, are the cosines of this round. `weights`, `(k,)`, is the weight of this round for each part
        of the model.
        """
        return self.cosines.of(clients, now, weights)

    def with_round(
        self, clients: tuple[ClientId, ...], kept: IntVector, now: FloatMatrix, weights: FloatVector
    ) -> Directions:
        """Return what is remembered after one more round, in which the rows `kept` were kept."""
        cosines = self.cosines.with_round(clients, now, weights)
        out = {*self.dropped, *clients} - {clients[row] for row in kept}
        return Directions(cosines, tuple(client for client in cosines.sums if client in out))


def cosines_with_middle(cosines: FloatMatrix, rows: BoolVector | None = None) -> FloatVector:
    """Return the cosine of each client's update with the geometric median of the unit updates in these rows.

    By default the median is that of all rows. Weiszfeld's algorithm needs only the cosines, `(m, m)`.
    """
    m = len(cosines)
    among = np.arange(m) if rows is None else np.flatnonzero(rows)
    everyone = among.size == m  # then use the matrix itself: to copy it would take longer than the algorithm
    own = cosines if everyone else cosines[np.ix_(among, among)]
    a = np.full(among.size, 1.0 / among.size)
    for _ in range(STEPS):
        along = own @ a
        new = 1.0 / np.sqrt(np.maximum(1.0 - 2.0 * along + a @ along, 1e-9))
        new /= new.sum()
        settled = float(np.abs(new - a).sum()) < SETTLED
        a = new
        if settled:
            break
    along = cosines @ a if everyone else cosines[:, among] @ a
    return np.asarray(along / np.sqrt(max(float(a @ along[among]), 1e-12)))


def all_cosines_with_middle(parts: Sequence[FloatMatrix], rows: BoolVector) -> FloatMatrix:
    """Return the cosines of all clients with the middle of these rows, `(m, k)`: a column for each part.

    `parts` has the cosines between the clients, `(m, m)`, for each of k parts of the model.
    """
    return np.column_stack([cosines_with_middle(cosines, rows) for cosines in parts])


def weights_of_round(parts: Sequence[FloatMatrix], rows: BoolVector) -> FloatVector:
    """Return the weight of a round in the averages, for each part of the model.

    It is the square of the mean cosine between two of these rows, or zero if this mean is negative.
    """
    return np.array([max(0.0, mean_cosine_within(cosines, rows)) ** 2 for cosines in parts])


def mean_cosine_within(cosines: FloatMatrix, rows: BoolVector) -> float:
    """Return the mean cosine between two different clients of these rows."""
    own = cosines if rows.all() else cosines[np.ix_(rows, rows)]
    n = len(own)
    return float((own.sum() - np.trace(own)) / max(n * (n - 1), 1))


def along_main_direction(cosines: FloatMatrix) -> FloatVector:
    """Return the cosine of each client's update with the main direction of all unit updates.

    The main direction is the first principal direction: the sum of the squared projections on it is largest. Power
    iteration finds it. If two groups of about the same size point in opposite directions, the middle is close to
    zero, but the main direction still shows the two groups.
    """
    # The start is not symmetric: a symmetric one may be orthogonal to the main direction.
    a = np.ones(len(cosines)) + 1e-3 * np.arange(len(cosines))
    for _ in range(STEPS):
        a = cosines @ a
        a /= max(float(np.linalg.norm(a)), 1e-300)
    along = cosines @ a
    return np.asarray(along / np.sqrt(max(float(a @ along), 1e-12)))
