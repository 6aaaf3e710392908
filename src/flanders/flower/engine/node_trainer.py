"""The class `NodeTrainer`: lets the clients of a simulated round train on Flower's nodes.

`FlowerSimulation` uses it in place of the simulator's own trainer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from torch import Tensor

from flanders.arrays import BoolVector, IntVector
from flanders.flower.engine.client_app import ARRAYS, CONFIG, METRICS, PARTITION, POISONED, SEED
from flanders.flower.engine.runtime import POLL, Link
from flanders.models import Layout
from flanders.simulation import Trained
from flanders.simulation.poisoning import Poisoner


class NodeTrainer:
    """Trains clients as `flanders.simulation.Trainer` does, but on Flower's nodes.

    It sends the global model to the nodes, and they reply with the trained models.

    Parameters
    ----------
    link
        The connection to the running nodes.
    layout
        The position of each parameter of the model in a flat vector.
    device
        The device to which the trained models are copied.
    """

    def __init__(self, link: Link, layout: Layout, device: torch.device) -> None:
        self.link, self.layout, self.device = link, layout, device
        nodes = list(link.grid.get_node_ids())
        questions = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in nodes]
        self.nodes: dict[int, int] = {}
        """The id of each client's node, by the number of the client."""
        for position, reply in self._exchange(questions):
            client = reply.content.metric_records[METRICS][PARTITION]
            if isinstance(client, int):
                self.nodes[client] = nodes[position]

    def train(
        self,
        model: Tensor,
        buffers: Mapping[str, Tensor],
        clients: Sequence[int] | IntVector,
        seed: int,
        *,
        poisoner: Poisoner | None = None,
        poisoned: Sequence[bool] | BoolVector = (),
    ) -> Trained:
        """Train these clients from a global model. `poisoned` says which of them train on poisoned data.

        The nodes poison the data themselves. So `poisoner` is not used.
        """
        sent = {**self.layout.unflatten(model), **buffers}
        arrays = ArrayRecord({name: tensor.cpu() for name, tensor in sent.items()})
        messages = []
        for client, is_poisoned in zip(clients, list(poisoned) or [False] * len(clients), strict=True):
            config = ConfigRecord({SEED: seed, POISONED: bool(is_poisoned)})
            content = RecordDict({ARRAYS: arrays, CONFIG: config})
            messages.append(Message(content, dst_node_id=self.nodes[int(client)], message_type=MessageType.TRAIN))
        updates = torch.empty((len(clients), self.layout.size), device=self.device)
        new_buffers = {name: old.new_empty((len(clients), *old.shape)) for name, old in buffers.items()}
        for row, reply in self._exchange(messages):
            tensors = reply.content.array_records[ARRAYS].to_torch_state_dict()
            updates[row] = self.layout.flatten(tensors).to(self.device)
            for name, rows in new_buffers.items():
                rows[row] = tensors[name].to(self.device)
        return Trained(updates, new_buffers)

    def _exchange(self, messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
        """Send messages, and yield the replies as they arrive, each with the position of its message."""
        grid = self.link.grid
        waiting = {id_: position for position, id_ in enumerate(grid.push_messages(messages))}
        if len(waiting) < len(messages):
            raise RuntimeError(f"Flower took {len(waiting)} of {len(messages)} messages")
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                position = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    # Without this client, the round would differ from the round of the simulator.
                    node = messages[position].metadata.dst_node_id
                    raise RuntimeError(f"Flower node {node} failed: {reply.error.reason}")
                yield position, reply
            if waiting:
                self.link.check()
                time.sleep(POLL)
