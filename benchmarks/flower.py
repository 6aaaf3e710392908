"""Measures the time and the memory that the Flower wrapper `FilteredStrategy` adds to Flower.

    python benchmarks/flower.py [--json FILE] [--clients 100] [--rounds 8]          # time
    python benchmarks/flower.py --memory [--json FILE] [--clients 10] [--parameters 20000000] [--only NAME ...]

How it measures
---------------
- Time: Flower's simulation runtime with Ray, and 100 clients with models of 784-128-10 units (101,770 parameters).
  Clients do not train. They reply at once with the model that they got, changed a little. One ServerApp runs FedAvg
  alone, and then FedAvg inside the wrapper with several filters, on the same nodes.
- The wrapper's own time is the time in its `configure_train` and `aggregate_train`, without the time in FedAvg and
  in the filter. The first round does not count, since Ray starts in it and the filter cannot judge yet. The results
  are medians over rounds.
- Memory: rounds of `Strategy.start` with FedAvg, in a fresh process. Replies are built from the same objects that
  a Flower server (SuperLink) would deliver. The result is the largest resident set during the rounds, minus that
  before the global model was made, divided by the size of the model (float32). This works on Linux only.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from flanders.arrays import FloatVector
from flanders.filters import DistanceToGlobal, Filter, Flanders, KeepAll, Sample
from flanders.flower import FilteredStrategy

SHAPES = {"0.weight": (128, 784), "0.bias": (128,), "1.weight": (10, 128), "1.bias": (10,)}
"""The layers of the model whose rounds are timed."""
LAYERS = 20
"""The number of layers of the model whose memory is measured."""
TARGET = 0.10
"""The wrapper may take at most this share of a round without training."""


def answer(message: Message, context: Context) -> Message:
    """Return a client's reply: the global model, changed a little."""
    number: Any = message.content["config"]["server-round"]
    given: Any = message.content["arrays"]
    rng = np.random.default_rng([context.node_id, number])
    arrays = {
        name: Array(array.numpy() + 0.01 * rng.standard_normal(array.shape, dtype=np.float32))
        for name, array in given.items()
    }
    record = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 10})})
    return Message(record, reply_to=message)


def now() -> FloatVector:
    """Return the wall-clock time, and the CPU time of this thread."""
    return np.array([time.perf_counter(), time.thread_time()])


class Timed(FedAvg):
    """FedAvg that adds up the time of its calls."""

    spent: FloatVector = np.zeros(2)

    def configure_train(self, *arguments: Any) -> Iterable[Message]:
        """Configure a round, and add up the time."""
        start = now()
        try:
            return super().configure_train(*arguments)
        finally:
            self.spent = self.spent + now() - start

    def aggregate_train(self, *arguments: Any) -> Any:
        """Aggregate the replies, and add up the time."""
        start = now()
        try:
            return super().aggregate_train(*arguments)
        finally:
            self.spent = self.spent + now() - start


@dataclass(frozen=True)
class TimedFilter(Filter[Any]):
    """A filter that records the time of its calls."""

    inner: Filter[Any]
    spent: list[FloatVector] = field(default_factory=list, repr=False)

    def init(self, rng: np.random.Generator | None = None) -> Any:
        """Return the memory of the inner filter."""
        return self.inner.init(rng)

    def score(self, *arguments: Any) -> Any:
        """Score the clients, and record the time."""
        return self._timed(self.inner.score, *arguments)

    def select(self, *arguments: Any) -> Any:
        """Select the clients to keep, and record the time."""
        return self._timed(self.inner.select, *arguments)

    def amend(self, *arguments: Any) -> Any:
        """Return the new memory, and record the time."""
        return self._timed(self.inner.amend, *arguments)

    def _timed(self, method: Callable[..., Any], *arguments: Any) -> Any:
        start = now()
        try:
            return method(*arguments)
        finally:
            self.spent.append(now() - start)


def measure_time(clients: int, rounds: int) -> list[dict[str, Any]]:
    from flwr.simulation import run_simulation

    server, app = ServerApp(), ClientApp()
    app.train()(answer)
    found: list[dict[str, Any]] = []

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        found.extend(compare(grid, clients, rounds))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config: Any = {
        "client_resources": {"num_cpus": 1},
        "init_args": {"log_to_driver": False, "logging_level": "error"},
    }
    run_simulation(server, app, clients, backend_config=config)
    return found


def compare(grid: Grid, clients: int, rounds: int) -> list[dict[str, Any]]:
    """Time FedAvg alone and inside the wrapper, one after the other, on the same nodes. Return the rows."""
    rng = np.random.default_rng(0)
    start = ArrayRecord({n: Array(rng.standard_normal(s, dtype=np.float32)) for n, s in SHAPES.items()})
    with tempfile.TemporaryDirectory() as folder:
        saving: dict[str, Any] = {"state_dir": Path(folder) / "state", "results": Path(folder) / "results.sqlite"}
        contestants: dict[str, tuple[Filter[Any] | None, dict[str, Any]]] = {
            "FedAvg, bare": (None, {}),
            "DistanceToGlobal(keep=0.8)": (DistanceToGlobal(keep=0.8), {}),
            "Flanders(keep=0.8, look=Sample(500))": (SAMPLING, {}),
            "Flanders(keep=0.8)": (Flanders(keep=0.8), {}),
            "Flanders(keep=0.8, look=Sample(500)), saved": (SAMPLING, saving),
        }
        results = {name: drive(grid, *what, start, clients, rounds) for name, what in contestants.items()}
    noop = float(np.median([seconds[0, 0] for seconds in results["FedAvg, bare"]]))
    rows = []
    for name, found in results.items():
        (whole, _), (own, cpu), (judging, _) = np.median(found, axis=0).tolist()
        bare = name == "FedAvg, bare"
        rows.append(
            {
                "what": name,
                "clients": clients,
                "round_s": whole,
                "filter_s": None if bare else judging,
                "wrapper_s": None if bare else own,
                "wrapper_cpu_s": None if bare else cpu,
                "share": None if bare else own / noop,
                "share_with_filter": None if bare else (own + judging) / noop,
            }
        )
    return rows


def drive(
    grid: Grid,
    filter_: Filter[Any] | None,
    options: dict[str, Any],
    arrays: ArrayRecord,
    clients: int,
    rounds: int,
) -> list[FloatVector]:
    """Return the times of each round except the first: of the whole round, of the wrapper alone, and of the filter.

    Each time is a pair: wall-clock seconds and CPU seconds.
    """
    inner = Timed(min_train_nodes=clients, min_available_nodes=clients)
    timed = TimedFilter(KeepAll() if filter_ is None else filter_)
    strategy: Strategy = inner if filter_ is None else FilteredStrategy(inner, timed, **options)
    seconds = []
    for number in range(1, rounds + 2):
        timed.spent.clear()
        inner.spent, start = np.zeros(2), now()
        messages = strategy.configure_train(number, arrays, ConfigRecord(), grid)
        configured = now()
        replies = grid.send_and_receive(messages)
        received = now()
        found, _ = strategy.aggregate_train(number, replies)
        end = now()
        arrays = arrays if found is None else found
        if number > 1:
            judging = sum(timed.spent, np.zeros(2))
            own = configured - start + end - received - inner.spent - judging
            seconds.append(np.stack([end - start, own, judging]))
    return seconds


class SimulatedGrid(Grid):
    """A grid without a network. It makes each client's reply when the strategy fetches it."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self._sent: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes."""
        return range(1, self.clients + 1)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Store the messages, and return their ids."""
        for message in messages:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
            self._sent[message.metadata.message_id] = message
        return list(self._sent)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies to the messages with the given ids."""
        return [arrived(self._sent.pop(id_)) for id_ in message_ids if id_ in self._sent]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Return the replies to messages."""
        return self.pull_messages(self.push_messages(messages))

    def set_run(self, run: Any) -> None:
        """Do nothing, since this grid has no run."""

    @property
    def run(self) -> Any:
        """Raise an error, since this grid has no run."""
        raise NotImplementedError

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        """Raise an error, since strategies do not call this method."""
        raise NotImplementedError


def arrived(message: Message) -> Message:
    """Return a client's reply to a message, built as Flower builds it from the objects that it receives."""
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    rng = np.random.default_rng(message.metadata.dst_node_id)
    record = ArrayRecord()
    for name, array in next(iter(message.content.array_records.values())).items():
        record[name] = Array(rng.standard_normal(array.shape, dtype=np.float32))
    content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 10})})
    reply = Message(content, reply_to=message)
    id_, sent = reply.object_id, {}
    for key, part in get_all_nested_objects(reply).items():
        sent[key] = part.deflate()
    del reply, content, record, part
    found = inflate_object_from_contents(id_, sent)
    if not isinstance(found, Message):
        raise TypeError(f"Flower made a {type(found).__name__} of a message")
    return found


SAMPLING = Flanders(keep=0.8, look=Sample(500))
MODES: dict[str, Callable[[], Strategy]] = {
    "FedAvg, bare": lambda: FedAvg(fraction_evaluate=0.0, min_train_nodes=1),
    "Flanders(keep=0.8, look=Sample(500))": lambda: FilteredStrategy(inside(), SAMPLING),
    "DistanceToGlobal(keep=0.8)": lambda: FilteredStrategy(inside(), DistanceToGlobal(keep=0.8)),
    "Flanders(keep=0.8)": lambda: FilteredStrategy(inside(), Flanders(keep=0.8)),
    "Flanders(keep=0.8), sketch=4096": lambda: FilteredStrategy(inside(), Flanders(keep=0.8), sketch=4096),
}


def inside() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0, min_train_nodes=1)


def measure_memory(mode: str, clients: int, parameters: int, rounds: int) -> dict[str, Any]:
    """Return the row of one mode: the largest memory during its rounds, in multiples of the size of the model."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    strategy, grid = MODES[mode](), SimulatedGrid(clients)
    strategy.start(grid, model_of_zeros(100 * LAYERS), num_rounds=1)  # a small run first, to import all modules
    strategy, before = MODES[mode](), resident()
    reset_peak()
    start = time.perf_counter()
    strategy.start(grid, model_of_zeros(parameters), num_rounds=rounds)
    model = 4 * parameters
    return {
        "what": mode,
        "clients": clients,
        "parameters": parameters,
        "rounds": rounds,
        "models": (peak() - before) / model,
        "seconds": time.perf_counter() - start,
    }


def model_of_zeros(parameters: int) -> ArrayRecord:
    record = ArrayRecord()
    for i in range(LAYERS):
        record[f"layer{i}"] = Array(np.zeros(parameters // LAYERS, dtype=np.float32))
    return record


def resident() -> int:
    return _status("VmRSS")


def peak() -> int:
    return _status("VmHWM")


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(key: str) -> int:
    lines: Iterator[str] = iter(Path("/proc/self/status").read_text().splitlines())
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def show(rows: list[dict[str, Any]]) -> None:
    cells = [[_cell(value) for value in row.values()] for row in rows]
    for row in [list(rows[0]), *cells]:
        widths = [max(len(r[i]) for r in [list(rows[0]), *cells]) for i in range(len(row))]
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of time")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--parameters", type=int, default=20_000_000, help="with --memory")
    parser.add_argument("--only", nargs="+", choices=list(MODES), metavar="NAME", help="with --memory")
    parser.add_argument("--measure", choices=list(MODES), help=argparse.SUPPRESS)
    parser.add_argument(
        "--check", action="store_true", help=f"fail if the wrapper takes more than {TARGET:.0%}% of a round"
    )
    options = parser.parse_args()
    if options.measure:
        found = measure_memory(options.measure, options.clients, options.parameters, options.rounds)
        print(json.dumps(found))
        return 0
    if options.memory:
        rows = []
        for mode in options.only or MODES:
            sizes = {
                "clients": options.clients or 10,
                "parameters": options.parameters,
                "rounds": options.rounds or 2,
            }
            flags = [text for key, value in sizes.items() for text in (f"--{key}", str(value))]
            command = [sys.executable, __file__, "--measure", mode, *flags]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    else:
        rows = measure_time(options.clients or 100, options.rounds or 8)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))
    missed = [row for row in rows if (row.get("share") or 0) > TARGET]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
