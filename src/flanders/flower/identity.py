"""Functions that find out which client is on a node.

The server identifies a client by the node to which it sends the message, never by anything that a reply claims. In
Flower, a SuperNode is the process of a node. The SuperLink is the process that passes messages between the server
and the nodes. The grid is the object with which the server sends messages.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Protocol

from flwr.app import Message, Metadata
from flwr.common.logger import log
from flwr.serverapp import Grid

from flanders.checks import InputError
from flanders.client_ids import ClientId
from flanders.plain_text import printable

LONGEST_NAME = 80
"""The log shortens the name of a node or a client that has more characters than this."""


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
"""A function that returns the name of the client on a node."""


def by_key(node: Node) -> ClientId:
    """Name the client on a node by the public key of the node, or by the node id if there is no key.

    With node authentication, a node has the same key after a restart of its SuperNode or of the SuperLink. Without
    node authentication, a SuperNode gets a new key and a new node id whenever it starts.
    """
    if not node.public_key:
        return sys.intern(str(node.node_id))  # several tables hold this name; interned, it is in memory only once
    return sys.intern(f"key-{hashlib.sha256(node.public_key).hexdigest()[:16]}")


@dataclass(frozen=True)
class AskedClient:
    """A client that the strategy has chosen for a message. A banned client does not get the message."""

    client: ClientId
    """The name of the client."""
    node: int
    """The id of the client's node."""
    name: str = ""
    """The name that the operator gave to the node; empty if there is none."""
    metadata: Metadata | None = None
    """The metadata of the message. The grid adds the message id when it sends the message."""

    @property
    def message_id(self) -> str:
        """The id of the message; empty if the message was not sent."""
        return "" if self.metadata is None else self.metadata.message_id

    @property
    def label(self) -> str:
        """The id and the name of the node, as the log shows them."""
        return f"{self.node} ({printable(self.name, LONGEST_NAME)})" if self.name else str(self.node)


def asked_clients(
    messages: Sequence[Message], grid: Grid, identify: Identify, remembered: Mapping[int, ClientId]
) -> list[AskedClient | None]:
    """Return the client that each message goes to; None if the client on the node is unknown.

    `remembered` says which client was on each node in earlier rounds. It is used for nodes that have left the grid.
    So a client cannot end its ban by leaving for a moment. If `identify` gives several nodes the same name, only
    the first of these nodes is asked.
    """
    listed = {node.node_id: node for node in grid.get_nodes()}
    ids = [message.metadata.dst_node_id for message in messages]
    names, why = _name_listed([listed[id_] for id_ in dict.fromkeys(ids) if id_ in listed], identify)
    for id_ in ids:
        # Some grids list no nodes at all. Then the id of a node is the name of its client.
        client = remembered.get(id_, None if listed else str(id_))
        if id_ not in listed and client is not None and client not in names:
            names[client] = id_
    clients = {id_: client for client, id_ in names.items()}
    asked: list[AskedClient | None] = []
    for message, id_ in zip(messages, ids, strict=True):
        if id_ in clients:
            name = listed[id_].name if id_ in listed else ""
            asked.append(AskedClient(clients[id_], id_, name, message.metadata))
        else:
            asked.append(None)
            unknown = "its client is unknown, and the node has left"
            log(WARNING, "flanders: node %s is not asked: %s", id_, why.get(id_, unknown))
    return asked


def _name_listed(nodes: Sequence[Node], identify: Identify) -> tuple[dict[ClientId, int], dict[int, Exception]]:
    """Return the node id of each client, by the name of the client, and the error for each node without a name.

    `identify` is the user's own function. If at most one of several nodes gets a name, `identify` is probably
    wrong, and its first error is raised. Otherwise the nodes without a name may be attackers, and are left out.
    """
    names: dict[ClientId, int] = {}
    why: dict[int, Exception] = {}
    for node in nodes:
        label = AskedClient("", node.node_id, node.name).label
        try:
            client = identify(node)
            if isinstance(client, bool) or not isinstance(client, int | str):
                raise InputError(
                    f"`identify=` must name clients by ints or strings. It named node {label} {client!r}."
                )
            if client in names:
                raise InputError(
                    "`identify=` must give each node a name of its own. "
                    f"It named both node {names[client]} and node {label} {client!r}."
                )
            names[client] = node.node_id
        except Exception as error:
            why[node.node_id] = error
    if why and len(names) <= 1 < len(nodes):
        raise next(iter(why.values()))
    return names, why
