"""Functions that limit how many clients a filter, an aggregator or a wrapper remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from flanders.client_ids import ClientId

K = TypeVar("K")
V = TypeVar("V")

ROUNDS_OF_CLIENTS, FEWEST_REMEMBERED = 10, 100
"""Two numbers from which the limit is computed: ten times the number of clients in a round, but at least a hundred.

If at least a tenth of all clients takes part in each round, no client is forgotten. Without a limit, made-up client
ids would fill the memory.
"""


def most_remembered(m: int, before: int) -> int:
    """Return the most clients that are remembered after a round of `m` clients.

    `before` is the number of clients that were remembered before the round. The result is never below `before`, so
    that a small round does not shrink the memory.
    """
    return max(FEWEST_REMEMBERED, ROUNDS_OF_CLIENTS * m, before)


def newest_clients(old: Mapping[ClientId, V], new: Mapping[ClientId, V], m: int) -> dict[ClientId, V]:
    """Return what is remembered of each client after a round: `old`, updated with the entries of `new`.

    `m` is the number of clients in the round. If there are more clients than `most_remembered` allows, those that
    took part longest ago are left out.

    Examples
    --------
    >>> after = newest_clients({f"old{i}": 0 for i in range(100)}, {"old3": 1, "new": 1}, m=10)
    >>> len(after), after["old3"], "old0" in after
    (100, 1, False)
    """
    return newest_entries(old, new, most_remembered(m, len(old)))


def newest_entries(old: Mapping[K, V], new: Mapping[K, V], most: int) -> dict[K, V]:
    """Return `old` updated with `new`. If there are more than `most` entries, the oldest are left out."""
    both = {key: value for key, value in old.items() if key not in new} | dict(new)
    return dict(list(both.items())[-most:])
