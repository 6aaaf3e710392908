"""The simulator's federation with its clients on Flower's simulation runtime: `flanders run --engine flower`.

The clients are Flower nodes. Each trains on the examples and with the random numbers it has in the simulator. All
else is the simulator itself, in one process, on what the nodes reply: the attacker that crafts what its clients
send, the defence, the test of the global model, what is recorded, and what is saved to resume.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from torch import Tensor, nn

from flanders.arrays import BoolVector, IntVector
from flanders.checks import InputError
from flanders.data import Dataset
from flanders.flower.engine.client import ARRAYS, CONFIG, METRICS, PARTITION, POISONED, SEED, make_client_app
from flanders.flower.engine.runtime import POLL, Link, Runtime, need_ray, ray_runtime
from flanders.models import Layout
from flanders.simulation import RoundRecord, Setting, Simulation
from flanders.simulation.training.trainer import Trained

__all__ = ["FlowerSimulation", "need_ray"]


class FlowerSimulation(Simulation):
    """A simulation whose clients train on Flower's simulation runtime.

    Parameters
    ----------
    setting
        What to simulate. The nodes load its dataset themselves. With `device="cuda"` each client at work has a
        GPU of its own, else a core.
    dataset
        The same data, if it has been loaded already.
    runtime
        How to start the nodes.

    Examples
    --------
    >>> for record in FlowerSimulation(Setting(num_clients=10, rounds=3)).run():  # doctest: +SKIP
    ...     print(record.number, record.accuracy)
    """

    def __init__(self, setting: Setting, dataset: Dataset | None = None, *, runtime: Runtime = ray_runtime) -> None:
        super().__init__(setting, dataset)
        self._runtime = runtime
        self._trainer = Absent()  # type: ignore[assignment]

    def run(self) -> Iterator[RoundRecord]:
        """Carry out the rounds that are left, one at a time, with the nodes up in the meantime."""
        device = self.device.type
        app = make_client_app(replace(self.setting, device=device))
        with self._runtime(app, self.setting.num_clients, float(device == "cuda")) as link:
            self._trainer = Fleet(link, self.module, self.device)  # type: ignore[assignment]
            try:
                yield from super().run()
            finally:
                self._trainer = Absent()  # type: ignore[assignment]


class Absent:
    """Stands where the clients are before they are up."""

    def train(self, *arguments: Any, **options: Any) -> Trained:
        """Say what to do."""
        raise InputError("The rounds of a FlowerSimulation are carried out by `run()`, which starts its nodes.")


class Fleet:
    """Trains clients as `flanders.simulation.Trainer` does, by sending the global model to their nodes.

    Parameters
    ----------
    link
        The running federation.
    module
        The model that the nodes train.
    device
        Where to gather what they reply.
    """

    def __init__(self, link: Link, module: nn.Module, device: torch.device) -> None:
        self.link, self.layout, self.device = link, Layout.of(module), device
        everyone = list(link.grid.get_node_ids())
        asked = [Message(RecordDict(), dst_node_id=node, message_type=MessageType.QUERY) for node in everyone]
        self.nodes: dict[int, int] = {}
        """The node that holds each client's data."""
        for place, reply in self._exchange(asked):
            partition: Any = reply.content.metric_records[METRICS][PARTITION]
            self.nodes[partition] = everyone[place]

    def train(
        self,
        model: Tensor,
        buffers: Mapping[str, Tensor],
        clients: Sequence[int] | IntVector,
        seed: int,
        *,
        poisoner: object = None,
        poisoned: Sequence[bool] | BoolVector = (),
    ) -> Trained:
        """Train these clients from a global model, the `poisoned` ones on poisoned data.

        The nodes have the poison from the setting; `poisoner` is not looked at.
        """
        sent = {**self.layout.unflatten(model), **buffers}
        arrays = ArrayRecord({name: tensor.cpu() for name, tensor in sent.items()})
        bad = list(poisoned) or [False] * len(clients)
        messages = []
        for client, poisoned_ in zip(clients, bad, strict=True):
            config = ConfigRecord({SEED: seed, POISONED: bool(poisoned_)})
            content = RecordDict({ARRAYS: arrays, CONFIG: config})
            messages.append(Message(content, dst_node_id=self.nodes[int(client)], message_type=MessageType.TRAIN))
        updates = torch.empty((len(clients), self.layout.size), device=self.device)
        after = {name: b.new_empty((len(clients), *b.shape)) for name, b in buffers.items()}
        for row, reply in self._exchange(messages):
            tensors = reply.content.array_records[ARRAYS].to_torch_state_dict()
            updates[row] = self.layout.flatten(tensors).to(self.device)
            for name, rows in after.items():
                rows[row] = tensors[name].to(self.device)
        return Trained(updates, after)

    def _exchange(self, messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
        """Send messages and yield the replies as they come, with the places of what they answer."""
        grid = self.link.grid
        waiting = {id_: place for place, id_ in enumerate(grid.push_messages(messages))}
        if len(waiting) < len(messages):
            raise RuntimeError(f"Flower took {len(waiting)} of {len(messages)} messages")
        while waiting:
            for reply in grid.pull_messages(list(waiting)):
                place = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    # An experiment that went on without this client would be another experiment.
                    node = messages[place].metadata.dst_node_id
                    raise RuntimeError(f"Flower node {node} failed: {reply.error.reason}")
                yield place, reply
            if waiting:
                self.link.check()
                time.sleep(POLL)
