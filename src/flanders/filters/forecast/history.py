"""The rounds that the filter `Flanders` remembers, and the inner products of all their vectors.

The vectors of a round are the models of its clients and the global model at its start. They are large, so the
filter reads those of the current round only once, to compute their inner products with each other and with all
remembered vectors. The fit, the forecasts and the scores follow from these inner products.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector, copied
from flanders.client_ids import ClientId
from flanders.linalg.products import inner_products
from flanders.linalg.selection import replace_rows
from flanders.round import Round, check_continued
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class Snapshot:
    """One remembered round."""

    clients: tuple[ClientId, ...]
    rows: Array
    """`(m, d)`: the models of the clients. Those of dropped clients are replaced; see `amended_snapshot`."""
    global_model: Array
    """`(d,)`: the global model at the start of the round."""

    @property
    def size(self) -> int:
        """The number of vectors in the snapshot: its rows and its global model."""
        return len(self.clients) + 1


@dataclass(frozen=True, eq=False)
class Numbering:
    """A list of all vectors of the remembered rounds and of the current round.

    The place of a vector is its position in this list. First come the vectors of each snapshot: its rows, then its
    global model. Then come the rows of the current round, then the origin (a model of zeros), and last the current
    global model.
    """

    snapshots: tuple[Snapshot, ...]
    """The remembered rounds, the oldest first."""
    round_: Round
    """The current round."""
    zero: Array = None
    """The vector at the place of the origin; None means zeros. If the vectors are sketches, it is not zero; see
    `look.in_sketch`."""

    def __post_init__(self) -> None:
        if self.snapshots:
            check_continued(self.round_, self.snapshots[-1].global_model)

    @cached_property
    def starts(self) -> list[int]:
        """The first place of each snapshot. The last entry is the first place of the current round."""
        return [0, *np.cumsum([s.size for s in self.snapshots]).tolist()]

    @property
    def current(self) -> IntVector:
        """The places of the current round's rows."""
        return self.starts[-1] + np.arange(len(self.round_.clients))

    @property
    def origin(self) -> int:
        """The place of the origin."""
        return self.starts[-1] + len(self.round_.clients)

    @property
    def global_model(self) -> int:
        """The place of the current global model."""
        return self.origin + 1

    @cached_property
    def rows_of_clients(self) -> tuple[dict[ClientId, int], ...]:
        """For each snapshot, the rows of its clients."""
        return tuple({c: i for i, c in enumerate(s.clients)} for s in self.snapshots)

    def columns(self, snapshot: int, clients: Sequence[ClientId]) -> IntVector:
        """Return the places of the rows of some clients in a snapshot.

        The place of an absent client is that of the snapshot's global model.
        """
        place = self.rows_of_clients[snapshot]
        return self.starts[snapshot] + np.array([place.get(c, len(place)) for c in clients], dtype=np.int64)

    def remembered_clients(self) -> tuple[ClientId, ...]:
        """Return all clients of the snapshots, each one once."""
        return tuple(dict.fromkeys(client for snapshot in self.snapshots for client in snapshot.clients))

    def recent_clients(self, count: int) -> set[ClientId]:
        """Return the clients of the last `count` snapshots."""
        return {client for snapshot in self.snapshots[-count:] for client in snapshot.clients}

    def last_accepted(self, client: ClientId) -> int:
        """Return the place of a client's newest remembered model, or of the global model if none is remembered."""
        for i in reversed(range(len(self.snapshots))):
            if client in self.rows_of_clients[i]:
                return self.starts[i] + self.rows_of_clients[i][client]
        return self.global_model

    def vector(self, place: int) -> Array:
        """Return the vector at a place: a vector of a snapshot, or the current global model."""
        if place == self.global_model:
            return self.round_.global_model
        i = bisect.bisect_right(self.starts, place) - 1
        snapshot, row = self.snapshots[i], place - self.starts[i]
        return snapshot.global_model if row == len(snapshot.clients) else snapshot.rows[row, :]


def products_of(numbering: Numbering, known: FloatMatrix | None = None) -> FloatMatrix:
    """Subtract the current global model from all vectors. Return the inner products of the differences.

    The differences are much smaller than the models, so the rounding errors of their inner products are small.

    `known` has the inner products of the snapshots' vectors from an earlier round; None if there are none. For
    them, another global model was subtracted: that of the newest snapshot. So the known inner products are
    converted, and only the other inner products are computed. The conversion is

        <y_i, y_j> = known_ij + <y_i, e> + <y_j, e> - <e, e>,

    where y_i is vector i minus the current global model, and e is the global model of the newest snapshot minus the
    current one.
    """
    round_ = numbering.round_
    vectors = [v for s in numbering.snapshots for v in (s.rows, s.global_model[None, :])]
    zero = round_.global_model * 0 if numbering.zero is None else numbering.zero
    pieces = [*vectors, round_.updates, zero[None, :]]
    last = numbering.global_model
    gram = np.zeros((last + 1, last + 1))  # the current global model is the zero vector here
    if known is None:
        gram[:last, :last] = inner_products(pieces, round_.global_model)
    else:
        old = numbering.starts[-1] - 1  # the place of the newest snapshot's global model
        fresh = inner_products(pieces, round_.global_model, tail=len(vectors) - 1)
        along_e = fresh[0, :old]
        gram[:old, :old] = known[:old, :old] + along_e[:, None] + along_e[None, :] - fresh[0, old]
        gram[old:last, :last] = fresh
        gram[:old, old:last] = fresh[:, :old].T
    return (gram + gram.T) / 2


def amended_snapshot(numbering: Numbering, kept: IntVector, *, last_accepted: bool) -> tuple[Snapshot, IntVector]:
    """Return the current round as a snapshot to remember, and the place from which each of its rows comes.

    The model of a dropped client is replaced. With `last_accepted`, the replacement is the client's newest
    remembered model, or the global model if no model of the client is remembered. Otherwise the replacement is the
    global model.
    """
    round_ = numbering.round_
    rejected = np.setdiff1d(np.arange(len(round_.clients)), kept)
    stand_ins = [
        numbering.last_accepted(round_.clients[i]) if last_accepted else numbering.global_model for i in rejected
    ]
    places = numbering.current
    places[rejected] = stand_ins
    rows = replace_rows(round_.updates, rejected, [numbering.vector(place) for place in stand_ins])
    return Snapshot(round_.clients, rows, copied(round_.global_model)), places
