"""Measures what the checks on replies cost: the CPU time of rounds with this code and with an earlier version.

    git worktree add ../before 9d6cad4
    python -m hardening.cost --before ../before [--pairs 60] [--json FILE]

The rounds have 100 clients, and the model has 100,000 parameters. One process runs this code, and another process
runs the earlier version. They take turns: each round is carried out by one process and then by the other. Each
process measures its own CPU time. The median of the ratios of these pairs is printed, with a 95% confidence
interval.

Both versions save their memory, write a results file and ban clients. This code also writes an audit trail, which
the earlier version does not have. Flower collects garbage after each reply. This is switched off in both processes,
since it takes longer than everything else and would hide a difference.

The first rounds of each process are not measured. The time of a round does not include the work of the clients or
the transport of messages.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from flanders import Flanders
from flanders.filters import Filter, Guard, KeepAll
from flanders.flower import Ban, FilteredStrategy
from hardening.federation import LocalGrid, Reply, quiet
from hardening.load import ROOT

CLIENTS = 100
SHAPES = {"0.weight": (300, 300), "0.bias": (300,), "1.weight": (97, 100)}
"""The shapes of the arrays of the model. They have 100,000 numbers together."""
WARM = 3
"""The number of rounds that are not measured. The first rounds load code and fill the memory of the filter."""
FILTERS: dict[str, Filter[Any]] = {
    "keep-all": KeepAll(),
    "flanders": Flanders(keep=0.8),
    "guard": Guard(),
}
"""The filters with which rounds are measured.

`guard` itself computes more than in the earlier version, so its ratio is not the cost of the checks alone."""
SAMPLES = 2000
"""The number of bootstrap samples for the confidence interval of the median ratio."""


@dataclass(frozen=True)
class Cost:
    """The CPU time of a round with this code, compared with the earlier version."""

    filter: str
    pairs: int
    before: float
    """The median CPU time of a round with the earlier version, in seconds."""
    after: float
    """The median CPU time of a round with this code, in seconds."""
    ratio: float
    """The median, over all pairs, of the time with this code divided by the time with the earlier version."""
    low: float
    """The lower end of the 95% confidence interval of `ratio`."""
    high: float
    """The upper end of that interval."""


def node(client: int) -> Reply:
    """Return an honest node. It replies with a small step, which is the same in both processes."""

    def reply(message: Message) -> list[Message]:
        number = message.content.config_records["config"]["server-round"]
        assert isinstance(number, int)
        rng = np.random.default_rng([client, number])
        arrays = {
            name: Array((0.9 * array.numpy() + 0.1 * rng.normal(size=array.shape)).astype(np.float32))
            for name, array in message.content.array_records["arrays"].items()
        }
        metrics = MetricRecord({"num-examples": 50 + client % 20, "train_loss": 0.5})
        return [Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)]

    return reply


def work(name: str, folder: Path, *, audit: bool) -> None:
    """Carry out a round for each line of standard input, and print the CPU time of the round."""
    make: Callable[..., FilteredStrategy] = FilteredStrategy  # the earlier version has no parameter `audit`
    more = {"audit": folder / "audit.jsonl"} if audit else {}
    with quiet():
        strategy = make(
            FedAvg(fraction_evaluate=0.0),
            FILTERS[name],
            state_dir=folder,
            results=folder / "results.sqlite",
            ban=Ban(after=10**6),
            seed=0,
            **more,
        )
        grid = LocalGrid({1000 + client: node(client) for client in range(CLIENTS)})
        rng = np.random.default_rng(0)
        arrays = ArrayRecord({key: Array(rng.normal(size=s).astype(np.float32)) for key, s in SHAPES.items()})
        for number, _ in enumerate(sys.stdin, start=1):
            start = time.process_time()
            messages = list(strategy.configure_train(number, arrays, ConfigRecord({"server-round": number}), grid))
            spent = time.process_time() - start
            replies = grid.send_and_receive(messages)
            start = time.process_time()
            new, _metrics = strategy.aggregate_train(number, replies)
            spent += time.process_time() - start
            assert new is not None
            arrays = new
            print(f"spent {spent}", flush=True)


def start_worker(tree: Path, name: str, folder: Path, *, audit: bool) -> subprocess.Popen[str]:
    """Start a process that carries out rounds with the code in the folder `tree`."""
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(tree / "src"), str(ROOT)])
    command = [sys.executable, "-m", "hardening.cost", "--work", name, str(folder), str(int(audit))]
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def one_round(worker: subprocess.Popen[str]) -> float:
    """Let a process carry out a round, and return the CPU time of the round in seconds."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("round\n")
    worker.stdin.flush()
    for line in worker.stdout:
        if line.startswith("spent "):
            return float(line.split()[1])
    raise RuntimeError(f"the worker ended with {worker.wait()}")


def compare(before: Path, name: str, pairs: int) -> Cost:
    """Let both versions carry out the same rounds in turns, and return the comparison."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_worker(before, name, Path(folder, "before"), audit=False) as old,
        start_worker(ROOT, name, Path(folder, "after"), audit=True) as new,
    ):
        times = []
        for number in range(WARM + pairs):
            first, second = (old, new) if number % 2 else (new, old)
            pair = {id(worker): one_round(worker) for worker in (first, second)}
            times.append((pair[id(old)], pair[id(new)]))
        for worker in (old, new):
            assert worker.stdin is not None
            worker.stdin.close()
    return summarised(name, np.array(times[WARM:]))


def summarised(name: str, times: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Cost:
    """Return the comparison of pairs of CPU times. The times of the earlier version are in the first column."""
    ratios = times[:, 1] / times[:, 0]
    drawn = np.random.default_rng(0).choice(ratios, size=(SAMPLES, ratios.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    medians = np.median(times, axis=0)
    return Cost(
        name, len(times), float(medians[0]), float(medians[1]), float(np.median(ratios)), float(low), float(high)
    )


def main() -> int:
    """Read the command line, compare the versions, and print the results."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), audit=sys.argv[4] == "1")
        return 0
    parser = argparse.ArgumentParser(prog="python -m hardening.cost", description="Measure what the checks cost.")
    parser.add_argument("--before", type=Path, required=True, help="the root of a tree with the earlier code")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of rounds for each filter (default: 60)")
    parser.add_argument("--filters", nargs="+", choices=list(FILTERS), default=list(FILTERS))
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    found = [compare(options.before.resolve(), name, options.pairs) for name in options.filters]
    for cost in found:
        print(
            f"{cost.filter}: {cost.before:.3f} s before, {cost.after:.3f} s after, ratio {cost.ratio:.3f} "
            f"({cost.low:.3f} to {cost.high:.3f}), {cost.pairs} pairs"
        )
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cost) for cost in found], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
