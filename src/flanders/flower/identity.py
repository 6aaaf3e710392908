"""Who is who: clients are known by where the server sent its message, never by what a reply claims."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, Metadata
from flwr.serverapp import Grid

from flanders.checks import InputError
from flanders.round import ClientId

Identify = Callable[[Any], ClientId]
"""Names the client behind a node, given the `NodeInfo` that the grid has of it."""


def by_key(node: Any) -> ClientId:
    """Name a node by its public key, where it has one, else by its node id.

    With node authentication the key outlives a restart of the SuperNode and of the SuperLink. Without it, a
    SuperNode draws a new key, and gets a new node id, whenever it starts.
    """
    if not node.public_key:
        return str(node.node_id)
    return f"key-{hashlib.sha256(node.public_key).hexdigest()[:16]}"


@dataclass(frozen=True)
class Asked:
    """A client that is sent a message in a round."""

    client: ClientId
    node: int
    name: str
    """What the operator has called the node; empty if nothing."""
    metadata: Metadata
    """Of the message; the grid enters its id when it is sent."""

    @property
    def label(self) -> str:
        """The node in words, for logs."""
        return f"{self.node} ({self.name})" if self.name else str(self.node)


def call_roll(messages: Iterable[Message], grid: Grid, identify: Identify) -> list[Asked]:
    """Return who is asked by these messages, according to the server's own list of nodes; each has its own name."""
    known = {node.node_id: node for node in grid.get_nodes()}
    asked = []
    for message in messages:
        node_id = message.metadata.dst_node_id
        node = known.get(node_id)
        if node is None:  # it has left since it was chosen; what is known of it is its id
            asked.append(Asked(str(node_id), node_id, "", message.metadata))
        else:
            asked.append(Asked(identify(node), node_id, node.name, message.metadata))
    _check_names(asked)
    return asked


def _check_names(asked: Iterable[Asked]) -> None:
    nodes: dict[ClientId, int] = {}
    for one in asked:
        if isinstance(one.client, bool) or not isinstance(one.client, int | str):
            raise InputError(
                f"`identify=` must name clients by ints or strings. It named node {one.label} {one.client!r}."
            )
        if nodes.setdefault(one.client, one.node) != one.node:
            raise InputError(
                "`identify=` must give each node a name of its own. "
                f"It named both {nodes[one.client]} and {one.node} {one.client!r}."
            )
