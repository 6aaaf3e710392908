"""The ids of clients: which ids are allowed, and in which order clients are sorted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import InputError, shown

ClientId = int | str


def by_name(clients: Sequence[ClientId]) -> IntVector:
    """Return the positions of the clients, sorted by their ids; see `sort_key`."""
    return np.array(sorted(range(len(clients)), key=lambda i: sort_key(clients[i])), dtype=np.int64)


def sort_key(client: ClientId) -> tuple[bool, ClientId]:
    """Return the key by which clients are sorted: ints come before strings."""
    return isinstance(client, str), client


def check_client(client: object) -> None:
    """Raise an `InputError` unless `client` can be the id of a client."""
    if isinstance(client, bool) or not isinstance(client, int | str):
        raise InputError(f"A client id must be an int or a string, got {shown(client)} ({type(client).__name__}).")


def check_clients(clients: Iterable[ClientId] | None, m: int) -> tuple[ClientId, ...]:
    """Return the client ids as plain ints and strings. Raise an `InputError` unless there are `m` different ids."""
    ids = tuple(c.item() if isinstance(c, np.generic) else c for c in (() if clients is None else clients))
    if not ids:
        return tuple(range(m))
    if len(ids) != m:
        raise InputError(f"`clients` must name all {m} rows of `updates`, got {len(ids)} ids.")
    for client in ids:
        check_client(client)
    if len(set(ids)) != m:
        twice = sorted({str(c) for c in ids if ids.count(c) > 1})
        raise InputError(
            f"Each client may send one update a round, but these ids appear more than once: {', '.join(twice)}. "
            "Keep the newest update of each."
        )
    return ids
