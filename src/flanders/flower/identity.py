"""The clients that are asked in a round, and their names.

The server knows a client by the node to which it sent its message, never by what a reply claims.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from flwr.app import Message, Metadata
from flwr.serverapp import Grid

from flanders.checks import InputError
from flanders.round import ClientId


class Node(Protocol):
    """A node as the server knows it: Flower's `NodeInfo`."""

    @property
    def node_id(self) -> int:
        """The id that the SuperLink gave to the node."""

    @property
    def public_key(self) -> bytes:
        """The key of the node; empty if there is none."""

    @property
    def name(self) -> str:
        """The name that the operator gave to the node; empty if there is none."""


Identify = Callable[[Node], ClientId]
"""Returns the name of the client on a node."""


def by_key(node: Node) -> ClientId:
    """Name a node by its public key if it has one, else by its node id.

    With node authentication the key survives a restart of the SuperNode and of the SuperLink. Without it, a
    SuperNode gets a new key and a new node id whenever it starts.
    """
    if not node.public_key:
        return str(node.node_id)
    return f"key-{hashlib.sha256(node.public_key).hexdigest()[:16]}"


@dataclass(frozen=True)
class AskedClient:
    """A client that the server sends a message to in a round."""

    client: ClientId
    node: int
    name: str = ""
    """The name that the operator gave to the node; empty if there is none."""
    metadata: Metadata | None = None
    """The metadata of the message. The grid enters the message's id when it sends it."""

    @property
    def message_id(self) -> str:
        """The id of the message; empty if it was not sent."""
        return "" if self.metadata is None else self.metadata.message_id

    @property
    def label(self) -> str:
        """The node as logs show it."""
        return f"{self.node} ({self.name})" if self.name else str(self.node)


def asked_clients(messages: Iterable[Message], grid: Grid, identify: Identify) -> list[AskedClient]:
    """Return the clients that these messages go to, and check that each has a name of its own."""
    known = {node.node_id: node for node in grid.get_nodes()}
    asked = []
    for message in messages:
        node_id = message.metadata.dst_node_id
        node = known.get(node_id)
        if node is None:  # the node has left since it was chosen, so that only its id is known
            asked.append(AskedClient(str(node_id), node_id, "", message.metadata))
        else:
            asked.append(AskedClient(identify(node), node_id, node.name, message.metadata))
    _check_names(asked)
    return asked


def _check_names(asked: Iterable[AskedClient]) -> None:
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
