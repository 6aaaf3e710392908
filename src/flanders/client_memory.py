"""The function `newest_clients`: limits how many clients a filter or an aggregator remembers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from flanders.round import ClientId

V = TypeVar("V")

ROUNDS_OF_CLIENTS, FEWEST_REMEMBERED = 10, 100
"""Ten times as many clients are remembered as take part in a round, or a hundred if that is more.

Without a limit, made-up client ids would fill the memory.
"""


def most_remembered(m: int, before: int) -> int:
    """Return how many clients are remembered after a round of `m` clients, if `before` clients were remembered.

    A small round does not make anybody forget clients.
    """
    return max(FEWEST_REMEMBERED, ROUNDS_OF_CLIENTS * m, before)


def newest_clients(old: Mapping[ClientId, V], new: Mapping[ClientId, V], m: int) -> dict[ClientId, V]:
    """Return `old`, updated with `new`, and cut to the clients that took part most recently.

    `m` is the number of clients in the round; see `most_remembered`.

    Examples
    --------
    >>> after = newest_clients({f"old{i}": 0 for i in range(100)}, {"old3": 1, "new": 1}, m=10)
    >>> len(after), after["old3"], "old0" in after
    (100, 1, False)
    """
    both = {client: value for client, value in old.items() if client not in new} | dict(new)
    return dict(list(both.items())[-most_remembered(m, len(old)) :])
