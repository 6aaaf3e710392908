"""The class `ReceivedGrid`: a Flower grid from which `FilteredStrategy` gets the models of a simulated round.

In Flower, the server sends messages to the clients' nodes through a grid, and gets the replies from it. When this
grid is made, the clients have trained already, and the attacker has replaced the models of malicious clients.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from torch import Tensor

from flanders.arrays import IntVector
from flanders.flower.engine.client_app import ARRAYS, METRICS
from flanders.models import Layout
from flanders.simulation import Received

if TYPE_CHECKING:
    from flwr.supercore.run import Run

EXAMPLES = "num-examples"
"""The name of the metric with a client's number of examples. Strategies use it as the client's weight."""


class ReceivedGrid(Grid):
    """A grid whose nodes have trained already and reply at once.

    Parameters
    ----------
    received
        The ids of the clients, and the models that they send: an array with a row per client.
    buffers
        The buffers that the clients send, by name. Each is an array with an entry per client.
    examples
        The number of examples of each client.
    layout
        The position of each parameter of the model in a row.
    """

    def __init__(
        self, received: Received, buffers: Mapping[str, Tensor], examples: IntVector, layout: Layout
    ) -> None:
        self._received, self._buffers, self._examples, self._layout = received, buffers, examples, layout
        self._rows = {int(client): row for row, client in enumerate(received.clients)}
        self._replies: dict[str, Message] = {}

    def get_node_ids(self) -> list[int]:
        """Return the ids of the nodes, which are the ids of the clients."""
        return list(self._rows)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes of the clients."""
        return [NodeInfo(node_id=client) for client in self._rows]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Take messages, and prepare the replies."""
        ids = []
        for message in messages:
            ids.append(uuid.uuid4().hex)
            message.metadata.__dict__["_message_id"] = ids[-1]  # Flower's own grids set the id in this way
            self._replies[ids[-1]] = Message(self._content(message.metadata.dst_node_id), reply_to=message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to these messages."""
        return [self._replies.pop(id_) for id_ in message_ids if id_ in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Return the replies to these messages. They are there at once, so `timeout` is not used."""
        return self.pull_messages(self.push_messages(messages))

    def _content(self, client: int) -> RecordDict:
        row = self._rows[client]
        tensors = {
            **self._layout.unflatten(self._received.updates[row]),
            **{name: rows[row] for name, rows in self._buffers.items()},
        }
        arrays = ArrayRecord({name: tensor.cpu() for name, tensor in tensors.items()})
        return RecordDict({ARRAYS: arrays, METRICS: MetricRecord({EXAMPLES: int(self._examples[row])})})

    def set_run(self, run: Run) -> None:
        """Do nothing, since a simulated round belongs to no run of Flower."""

    @property
    def run(self) -> Run:
        """Not available, since a simulated round belongs to no run of Flower."""
        raise NotImplementedError("A simulated round belongs to no run of Flower.")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)
