"""What `Fingerprint` remembers of the clients: their marks, and what is usual for each of them.

`questions` explains the words: mark, heading, crowd and company.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector
from flanders.linalg.selection import take_rows
from flanders.round import ClientId
from flanders.state import saveable

NO_COMPANY = (math.inf, 1.0)
"""Middle and spread of what clients have in common, before a round has shown it. No crowd is above this middle."""


@saveable
@dataclass(frozen=True, eq=False)
class Signatures:
    """What is remembered of the clients accepted so far."""

    clients: tuple[ClientId, ...] = ()
    """The K clients that are remembered, in the order in which they were accepted last."""
    marks: Array = None
    """`(K, d)`: each client's mark, a unit vector; None before any client is known."""
    usual: FloatMatrix | None = None
    """`(K, 2)`: each client's usual log length and heading, relative to its round's typical ones."""
    crowd: Array = None
    """`(d,)`: the mean direction of the clients accepted last, a unit vector."""
    typical: tuple[float, float] = (0.0, 0.0)
    """The log length and the heading of the last round's typical update."""
    lowest: tuple[float, float] = (math.inf, math.inf)
    """The lowest typical log length and heading so far."""
    company: tuple[float, float] = NO_COMPANY
    """Middle and spread of what accepted clients had in common. Each is the lowest of all rounds so far."""
    accepted: IntVector | None = None
    """`(K,)`: the round in which each client was accepted last."""
    past: tuple[FloatMatrix, ...] = ()
    """The answers of the clients accepted in the last rounds, `(n, channels)` each."""
    failures: int = 0
    """How many rounds in a row kept too few clients."""
    refused: Array = None
    """`(n, d)`: the directions of the updates that were dropped in the last round; None if none was."""

    def marks_to_compare_with(self, places: IntVector) -> tuple[Array, IntVector, int]:
        """Return the marks at these places, followed by those of all clients accepted last.

        Also return the rows of this array that belong to the places, and the number of rows before those of the
        clients accepted last. If at least half of all marks are wanted, all are returned, since that needs no
        copy.
        """
        assert self.accepted is not None
        newest = np.flatnonzero(self.accepted == self.accepted.max())  # these are the last ones in `marks`, too
        wanted = np.concatenate([np.setdiff1d(places, newest), newest])
        if 2 * wanted.size >= len(self.clients):
            return self.marks, places, len(self.clients) - newest.size
        at = np.zeros(len(self.clients), dtype=np.int64)
        at[wanted] = np.arange(wanted.size)
        return take_rows(self.marks, wanted), at[places], wanted.size - newest.size
