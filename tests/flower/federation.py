"""A federation in one process, without Ray: what the tests of the Flower wrapper run on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from peers import flower

app = flower("app")
serverapp = flower("serverapp")
strategies = flower()

Reply = Callable[[Any], Any]
"""Takes a message and returns what comes back: a reply, several, or None."""


@dataclass
class Node:
    """What the server knows of a node."""

    node_id: int
    public_key: bytes = b""
    name: str = ""


class LocalGrid(serverapp.Grid):
    """Calls a function for each message, at once; the function plays the node."""

    def __init__(self, nodes: dict[int, Reply], keys: dict[int, bytes] | None = None) -> None:
        self.nodes = nodes
        self.keys = keys or {}
        self.sent: list[Any] = []
        self.asked: dict[str, dict[int, list[int]]] = {"train": {}, "evaluate": {}}
        """Who was asked in each round."""
        self._replies: dict[str, list[Any]] = {}
        become_server()

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def get_nodes(self) -> list[Node]:
        return [Node(id_, self.keys.get(id_, b"")) for id_ in self.nodes]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        ids = []
        for message in messages:
            id_ = uuid.uuid4().hex
            message.metadata.__dict__["_message_id"] = id_
            self.sent.append(message)
            number = next(iter(message.content.config_records.values()), {}).get("server-round")
            by_round = self.asked.setdefault(message.metadata.message_type, {})
            by_round.setdefault(number, []).append(message.metadata.dst_node_id)
            found = self.nodes[message.metadata.dst_node_id](message)
            self._replies[id_] = found if isinstance(found, list) else [] if found is None else [found]
            ids.append(id_)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [reply for id_ in message_ids for reply in self._replies.pop(id_, [])]

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        return self.pull_messages(list(self.push_messages(messages)))

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


def become_server() -> None:
    """Give this process the identity that Flower's messages are stamped with."""
    identity = flower("supercore.task_identity").TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, 1, 1


def model(*shapes: tuple[int, ...], seed: int = 0, dtype: str = "float32", names: Sequence[str] = ()) -> Any:
    """Return a global model of random numbers."""
    rng = np.random.default_rng(seed)
    names = names or [f"layer{i}.weight" for i in range(len(shapes))]
    arrays = {n: app.Array(rng.normal(size=s).astype(dtype)) for n, s in zip(names, shapes, strict=True)}
    return app.ArrayRecord(arrays)


def content(arrays: Any, **metrics: Any) -> Any:
    """Return what an ordinary client sends."""
    metrics = {"num-examples": 10, "train_loss": 0.5, **metrics}
    metrics = {key: value for key, value in metrics.items() if value is not None}
    return app.RecordDict({"arrays": arrays, "metrics": app.MetricRecord(metrics)})


def trained(arrays: Any, client: int, rng: np.random.Generator) -> Any:
    """Return arrays a step nearer to where the client's own data would have them, give or take a little."""
    new, aim = {}, np.random.default_rng(client)
    for name, array in arrays.items():
        x = array.numpy()
        step = 0.3 * (aim.normal(size=x.shape) - x) + 0.02 * rng.normal(size=x.shape) if x.dtype.kind == "f" else 1
        moved = np.abs(x + step) if name.endswith("running_var") else x + step
        new[name] = app.Array(np.asarray(moved, dtype=x.dtype))
    return app.ArrayRecord(new)


@dataclass
class Client:
    """A node that trains a little, or does something else to what it would send."""

    seed: int
    twist: Callable[[Any, Any], Any] | None = None
    """Takes the message and the honest content, and returns a message, several, or None."""
    examples: int = 10
    rounds: int = field(default=0)

    def __call__(self, message: Any) -> Any:
        if message.metadata.message_type == "evaluate":
            record = app.MetricRecord({"num-examples": self.examples, "eval_acc": 0.75, "eval_loss": 0.5})
            return app.Message(app.RecordDict({"metrics": record}), reply_to=message)
        self.rounds += 1
        rng = np.random.default_rng([self.seed, self.rounds])
        arrays = next(iter(message.content.array_records.values()))
        honest = content(trained(arrays, self.seed, rng), **{"num-examples": self.examples})
        return app.Message(honest, reply_to=message) if self.twist is None else self.twist(message, honest)


def grid_of(count: int, twists: dict[int, Any] | None = None, kind: type = LocalGrid, **options: Any) -> Any:
    """Return a federation of nodes 100, 101, ..., of which some twist what they send."""
    return kind({100 + i: Client(i, (twists or {}).get(i), 10 + i) for i in range(count)}, **options)


def play(strategy: Any, grid: LocalGrid, arrays: Any, rounds: int, first: int = 1) -> list[tuple[Any, Any]]:
    """Carry out rounds as Flower does, and return what each came to."""
    results = []
    for number in range(first, first + rounds):
        messages = strategy.configure_train(number, arrays, app.ConfigRecord(), grid)
        found, metrics = strategy.aggregate_train(number, grid.send_and_receive(messages))
        arrays = arrays if found is None else found
        results.append((found, metrics))
    return results


def flat(arrays: Any) -> np.ndarray:
    """Return a record's numbers as one vector."""
    return np.concatenate([x.astype(np.float64).ravel() for x in arrays.to_numpy_ndarrays()])
