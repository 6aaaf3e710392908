"""A Flower federation in one process, without a network. The programs of this folder attack it."""

from __future__ import annotations

import gc
import logging
import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore.task_identity import TaskIdentity

import flanders.flower  # noqa: F401  (this import suppresses the warnings of Flower)

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

Reply = Callable[[Message], list[Message]]
"""A function that plays a node: from a message of the server to the messages that the node sends back."""


class LocalGrid(Grid):
    """A grid that calls a function for each message. The function plays the node."""

    def __init__(self, nodes: Mapping[int, Reply]) -> None:
        self.nodes = nodes
        self._replies: dict[str, list[Message]] = {}
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1

    def get_node_ids(self) -> list[int]:
        """Return the ids of the nodes."""
        return list(self.nodes)

    def get_nodes(self) -> list[NodeInfo]:
        """Return the descriptions of the nodes."""
        return [NodeInfo(node_id=id_) for id_ in self.nodes]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Call the function of each addressed node, store the replies, and return the ids of the messages."""
        ids = []
        for message in messages:
            ids.append(uuid.uuid4().hex)
            message.metadata.__dict__["_message_id"] = ids[-1]
            self._replies[ids[-1]] = self.nodes[message.metadata.dst_node_id](message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to these messages."""
        return [reply for id_ in message_ids for reply in self._replies.pop(id_, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Send messages and return all replies."""
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: object) -> None:
        """Do nothing, since there is only one run."""

    @property
    def run(self) -> Any:
        """Return None, since there is no description of the run."""
        return None

    def create_message(self, *arguments: object, **options: object) -> Message:
        """Raise an error. Strategies make their messages themselves."""
        raise NotImplementedError


def start_model(seed: int = 0) -> ArrayRecord:
    """Return a small global model: two layers, the buffers of batch normalisation, and a counter."""
    rng = np.random.default_rng(seed)
    return ArrayRecord(
        {
            "0.weight": Array(rng.normal(size=(6, 5)).astype(np.float32)),
            "0.bias": Array(rng.normal(size=6).astype(np.float32)),
            "bn.running_mean": Array(np.zeros(6, np.float32)),
            "bn.running_var": Array(np.ones(6, np.float32)),
            "bn.num_batches_tracked": Array(np.array(0, np.int64)),
            "1.weight": Array(rng.normal(size=(3, 6)).astype(np.float32)),
        }
    )


def honest_arrays(message: Message, client: int) -> ArrayRecord:
    """Return the model that a client has trained: a step towards a point of its own, plus a little noise."""
    number: Any = next(iter(message.content.config_records.values()))["server-round"]
    rng, aim = np.random.default_rng([client, number]), np.random.default_rng(client)
    new = {}
    for name, array in next(iter(message.content.array_records.values())).items():
        x = array.numpy()
        if x.dtype.kind == "f":
            step = 0.3 * (1 + 0.3 * aim.normal(size=x.shape) - x) + 0.02 * rng.normal(size=x.shape)
        else:
            step = np.ones(x.shape)
        new[name] = Array(np.asarray(x + step, dtype=x.dtype))
    return ArrayRecord(new)


def honest_content(message: Message, client: int) -> RecordDict:
    """Return the content of an honest client's reply."""
    metrics = MetricRecord({"num-examples": 50 + client % 20, "train_loss": 0.5})
    return RecordDict({"arrays": honest_arrays(message, client), "metrics": metrics})


def is_finite(arrays: ArrayRecord) -> bool:
    """Whether every number of a model is finite, also when converted to the types of the start model."""
    for name, first in start_model().items():
        with np.errstate(all="ignore"):
            if not np.isfinite(arrays[name].numpy().astype(first.numpy().dtype)).all():
                return False
            if not np.isfinite(arrays[name].numpy()).all():
                return False
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block, switch off logs, warnings, and the garbage collection that Flower does after each reply."""
    logger, collect = logging.getLogger("flwr"), gc.collect
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    logging.getLogger("flanders").setLevel(logging.CRITICAL + 1)
    gc.collect = lambda generation=2: 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        logging.getLogger("flanders").setLevel(logging.NOTSET)
        gc.collect = collect


def train(strategy: Strategy, grid: Grid, number: int, arrays: ArrayRecord) -> ArrayRecord | None:
    """Carry out one round of training, and return the new global model. None if the model does not change."""
    messages = strategy.configure_train(number, arrays, ConfigRecord({"server-round": number}), grid)
    new, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
    return new


def honest_node(client: int) -> Reply:
    """Return a node that trains and replies honestly."""
    return lambda message: [Message(honest_content(message, client), reply_to=message)]


def honest_nodes(count: int = 8, first: int = 100) -> dict[int, Reply]:
    """Return honest nodes by their ids."""
    return {first + client: honest_node(client) for client in range(count)}
