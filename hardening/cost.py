"""What the checks cost: rounds of 100 clients with 100,000 parameters, with this code and with an earlier one.

    git worktree add ../before 9d6cad4
    python -m hardening.cost --before ../before [--pairs 60] [--json FILE]

Two processes carry out the same rounds, one with each code, by turns: first a round of one, then the same round of
the other. Each measures its own CPU time. The ratio of each pair is taken, and the median of the ratios is printed
with a 95% interval. Saved memory, results file and bans are on in both. The audit trail, which the earlier code
does not have, is on in this one. Flower's own collection of garbage after each reply is switched off in both, since
it takes longer than everything else and would hide a difference.

A process first carries out some rounds that are not measured. The time of a round does not include what the clients
do, nor the transport.
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
"""The arrays of the model. They have 100,000 numbers."""
WARM = 3
"""Rounds that are not measured: the first ones load code and fill memories."""
FILTERS: dict[str, Filter[Any]] = {
    "keep-all": KeepAll(),
    "flanders": Flanders(keep=0.8),
    "guard": Guard(),
}
"""The filters of the rounds. `guard` does more than it did at first, whatever the checks cost."""
SAMPLES = 2000
"""How often the ratios are drawn anew for the interval of their median."""


@dataclass(frozen=True)
class Cost:
    """What a round costs with this code, compared with an earlier one."""

    filter: str
    pairs: int
    before: float
    """Seconds of CPU time of a round with the earlier code: the median."""
    after: float
    """Seconds of CPU time of a round with this code: the median."""
    ratio: float
    """The median of the ratios of the pairs."""
    low: float
    """The lower end of its 95% interval."""
    high: float


def node(client: int) -> Reply:
    """Return a node that trains: a small step, the same in both processes."""

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
    """Carry out a round for each line that comes in, and print its CPU time."""
    make: Callable[..., FilteredStrategy] = FilteredStrategy  # the earlier one does not know `audit`
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
    """Start a process that carries out rounds with the code in a tree."""
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(tree / "src"), str(ROOT)])
    command = [sys.executable, "-m", "hardening.cost", "--work", name, str(folder), str(int(audit))]
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


def one_round(worker: subprocess.Popen[str]) -> float:
    """Let a process carry out a round, and return its CPU time."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write("round\n")
    worker.stdin.flush()
    for line in worker.stdout:
        if line.startswith("spent "):
            return float(line.split()[1])
    raise RuntimeError(f"the worker ended with {worker.wait()}")


def compare(before: Path, name: str, pairs: int) -> Cost:
    """Let both codes carry out the same rounds by turns."""
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
    """Return what pairs of CPU times say: the earlier code's are in the first column."""
    ratios = times[:, 1] / times[:, 0]
    drawn = np.random.default_rng(0).choice(ratios, size=(SAMPLES, ratios.size))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    medians = np.median(times, axis=0)
    return Cost(
        name, len(times), float(medians[0]), float(medians[1]), float(np.median(ratios)), float(low), float(high)
    )


def main() -> int:
    """Read the command line, compare, and print what was found."""
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], Path(sys.argv[3]), audit=sys.argv[4] == "1")
        return 0
    parser = argparse.ArgumentParser(prog="python -m hardening.cost", description="What the checks cost.")
    parser.add_argument("--before", type=Path, required=True, help="the root of a tree with the earlier code")
    parser.add_argument("--pairs", type=int, default=60, help="pairs of rounds for each filter (default: 60)")
    parser.add_argument("--filters", nargs="+", choices=list(FILTERS), default=list(FILTERS))
    parser.add_argument("--json", type=Path, help="also write what was found to this file")
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
