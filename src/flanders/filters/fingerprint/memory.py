"""`Signatures`: what the filters `Fingerprint` and `Guard` remember of the clients.

An update is the difference between a client's model and the global model. These words are used here:

- A client is *accepted* in a round if the filter keeps it.
- The *common direction* is the mean direction of the updates that were accepted last.
- The *mark* of a client is the direction in which its update differed from the common direction when the client was
  last accepted.
- The *heading* of an update is its cosine with the common direction.
- The *company* of a client is its mean cosine with the other clients.

`questions` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector
from flanders.client_ids import ClientId
from flanders.linalg.selection import take_rows
from flanders.state import saveable

NO_COMPANY = (math.inf, 1.0)
"""The median and the spread of the clients' company, before they are known. No company is above this median."""

LEAST_SHARE = 0.5
"""Nothing is learnt from a round with fewer clients than this share of those accepted in the last round that was
learnt from.

If most clients happen to be absent, one or two attackers may be the majority of those that reply. What they send
would then count as usual in the next round, in which all honest clients would seem to have changed.
"""
LONGEST_WAIT = 30
"""After this many rounds from which nothing was learnt, the next one is learnt from, since the federation has
shrunk."""


@saveable
@dataclass(frozen=True, eq=False)
class Signatures:
    """What is remembered of the clients accepted so far."""

    clients: tuple[ClientId, ...] = ()
    """The K clients that are remembered. The client that was accepted most recently comes last."""
    marks: Array = None
    """`(K, d)`: each client's mark, a unit vector; None before any client was accepted."""
    usual: FloatMatrix | None = None
    """`(K, 2)`: the usual log length and the usual heading of each client's updates. The typical log length and
    heading of each round were subtracted."""
    crowd: Array = None
    """`(d,)`: the common direction, a unit vector. The groups of the module `crowd` are something else."""
    typical: tuple[float, float] = (0.0, 0.0)
    """The typical log length and the typical heading of the last round; `decision.typical_level` explains them."""
    lowest: tuple[float, float] = (math.inf, math.inf)
    """The lowest typical log length and the lowest typical heading so far."""
    company: tuple[float, float] = NO_COMPANY
    """The lowest median and the lowest spread of the accepted clients' company so far."""
    accepted: IntVector | None = None
    """`(K,)`: the number of the round in which each client was accepted last."""
    past: tuple[FloatMatrix, ...] = ()
    """For each of the last rounds: the answers of its accepted clients. There is a row for each client, and a
    column for each channel; see `Answers.relative` in `questions`."""
    failures: int = 0
    """How many rounds in a row have kept no client."""
    between: FloatMatrix | None = None
    """The inner products between the vectors that the last round has added: the marks of its accepted clients,
    `crowd`, and `refused`, in this order. If it is None, these inner products have to be computed when they are
    needed."""
    refused: Array = None
    """`(n, d)`: the directions of the n updates that were dropped in the last round; None if no update was
    dropped."""

    @property
    def newest(self) -> int:
        """How many clients were accepted in the last round that was learnt from; 0 before the first such round."""
        return 0 if self.accepted is None else int((self.accepted == self.accepted.max()).sum())

    def is_large_enough(self, m: int, number: int) -> bool:
        """Whether to learn from round `number`, which has m clients; see `LEAST_SHARE` and `LONGEST_WAIT`."""
        waited_long = self.accepted is None or number - int(self.accepted.max()) > LONGEST_WAIT
        return waited_long or m >= LEAST_SHARE * self.newest

    def marks_to_compare_with(self, places: IntVector) -> tuple[Array, IntVector, int]:
        """Return the marks at the positions `places`, followed by the marks of all clients accepted last.

        The second result has the rows of the first result in which the marks at `places` are. The third result is
        the number of rows before the marks of the clients accepted last. If at least half of all marks are needed,
        all marks are returned, since this needs no copy.
        """
        assert self.accepted is not None
        newest = np.flatnonzero(self.accepted == self.accepted.max())  # these are the last rows of `marks`
        wanted = np.concatenate([np.setdiff1d(places, newest), newest])
        if 2 * wanted.size >= len(self.clients):
            return self.marks, places, len(self.clients) - newest.size
        at = np.zeros(len(self.clients), dtype=np.int64)
        at[wanted] = np.arange(wanted.size)
        return take_rows(self.marks, wanted), at[places], wanted.size - newest.size
