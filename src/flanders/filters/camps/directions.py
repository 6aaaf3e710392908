r"""How far each client goes along with the others, in this round and in all rounds so far.

The measure is the cosine :math:`x_c` of client c's update with the middle of the round. The middle is the geometric
median of the unit updates: up to half of them cannot move it far. The cosines are measured for each part of the
model, since an attacker may bend one part and leave another one as it is.

One round may not show enough. So the cosines of each client are averaged over all rounds in which it took part,

.. math:: \bar x_c = \frac{\sum_t a_t^2\, x_{c,t}}{\sum_t a_t^2},

where :math:`a_t` is the mean cosine between two different clients that were kept in round t, or zero if it is
negative. Clients agree less and less as training goes on, and in the end their cosines are almost only noise. With
these weights late rounds do not hide what early rounds have shown.

A client that was dropped the last time it took part has no say in where the middle is. Otherwise attackers that
were dropped once could move the middle towards themselves and so be kept again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, FloatVector, IntVector
from flanders.filters.camps.averages import ClientAverages
from flanders.round import ClientId
from flanders.state import saveable

STEPS = 30
"""Steps of Weiszfeld's algorithm: more steps do not visibly change the geometric median of unit vectors."""
SETTLED = 1e-4
"""The algorithm stops when the weights of the clients in the median change by less than this in a step, all changes
added up."""
LEAST_SHARE = 0.1
"""If less than this share of a round is left without the clients that were dropped the last time, those also have a
say."""
FEWEST = 4
"""The same holds if fewer clients than this are left: a middle of so few lies too close to each of them."""


@saveable
@dataclass(frozen=True, eq=False)
class Directions:
    """What is remembered of the clients' directions."""

    cosines: ClientAverages = field(default_factory=ClientAverages)
    """The average cosine of each client with the middle, for each of k parts of the model."""
    dropped: tuple[ClientId, ...] = ()
    """The clients that were dropped the last time they took part."""

    def middle_rows(self, clients: tuple[ClientId, ...], rows: BoolVector) -> BoolVector:
        """Return which of these rows have a say in where the middle is."""
        dropped = set(self.dropped)
        trusted = rows & np.array([client not in dropped for client in clients], dtype=bool)
        return trusted if trusted.sum() >= max(FEWEST, LEAST_SHARE * len(clients)) else rows

    def averages(self, clients: tuple[ClientId, ...], now: FloatMatrix, weights: FloatVector) -> FloatMatrix:
        """Return the average cosines of the clients over all rounds, this one included.

        `now` are the cosines of this round, `(m, k)`, and `weights` is the weight of the round for each part.
        """
        return self.cosines.of(clients, now, weights)

    def with_round(
        self, clients: tuple[ClientId, ...], kept: IntVector, now: FloatMatrix, weights: FloatVector
    ) -> Directions:
        """Return what is remembered after one more round."""
        cosines = self.cosines.with_round(clients, now, weights)
        out = {*self.dropped, *clients} - {clients[row] for row in kept}
        return Directions(cosines, tuple(client for client in cosines.sums if client in out))


def cosines_with_middle(cosines: FloatMatrix, rows: BoolVector | None = None) -> FloatVector:
    """Return the cosine of each unit vector with the geometric median of these rows; by default of all.

    Weiszfeld's algorithm finds the median from the inner products alone.
    """
    m = len(cosines)
    among = np.arange(m) if rows is None else np.flatnonzero(rows)
    everyone = among.size == m  # a copy of a large matrix takes longer than all the rest
    own = cosines if everyone else cosines[np.ix_(among, among)]
    a = np.full(among.size, 1.0 / among.size)
    for _ in range(STEPS):
        with_it = own @ a
        new = 1.0 / np.sqrt(np.maximum(1.0 - 2.0 * with_it + a @ with_it, 1e-9))
        new /= new.sum()
        settled = float(np.abs(new - a).sum()) < SETTLED
        a = new
        if settled:
            break
    with_it = cosines @ a if everyone else cosines[:, among] @ a
    return np.asarray(with_it / np.sqrt(max(float(a @ with_it[among]), 1e-12)))


def all_cosines_with_middle(parts: Sequence[FloatMatrix], rows: BoolVector) -> FloatMatrix:
    """Return the cosines of all clients with the middle of these rows, `(m, k)`: a column for each part."""
    return np.column_stack([cosines_with_middle(cosines, rows) for cosines in parts])


def weights_of_round(parts: Sequence[FloatMatrix], rows: BoolVector) -> FloatVector:
    """Return the weight of a round in the averages, for each part: the square of the mean cosine of these rows."""
    return np.array([max(0.0, mean_cosine_within(cosines, rows)) ** 2 for cosines in parts])


def mean_cosine_within(cosines: FloatMatrix, rows: BoolVector) -> float:
    """Return the mean cosine between two different clients among these rows."""
    own = cosines if rows.all() else cosines[np.ix_(rows, rows)]
    n = len(own)
    return float((own.sum() - np.trace(own)) / max(n * (n - 1), 1))


def along_main_direction(cosines: FloatMatrix) -> FloatVector:
    """Return the cosine of each unit vector with the direction in which their squared projections sum to the most.

    This is the first principal direction, found by power iteration. Unlike the middle it does not vanish if two
    camps of about the same size point against each other.
    """
    a = np.ones(len(cosines)) + 1e-3 * np.arange(len(cosines))  # unequal: never orthogonal by symmetry
    for _ in range(STEPS):
        a = cosines @ a
        a /= max(float(np.linalg.norm(a)), 1e-300)
    with_it = cosines @ a
    return np.asarray(with_it / np.sqrt(max(float(a @ with_it), 1e-12)))
