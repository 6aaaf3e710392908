"""Runs a long federation with clients that come and go. Some are hostile, and the server is killed repeatedly.

    python -m hardening.soak [--rounds 1000] [--clients 30] [--ids 10000] [--kill-every 50] [--json FILE]

Two federations do the same work: 1,000 rounds with 30 clients in each. The clients come from 10,000 ids, which
join, stay for a while and leave. In the first half of the rounds all ids appear. In the second half they come back.
A fifth of the clients are hostile: they send noise, NaN, arrays of another shape, or nothing. Both federations save
their memory, write a results file and an audit trail, and ban clients. The first federation runs in one process,
and the memory of this process is measured after each round. The server of the second federation is killed with
SIGKILL every 50 rounds, at a random moment of a round, and started again.

Both federations must carry out all rounds. The fate, the score and the reason of every client in every round, and
the final global model, must be the same. Two straight lines are fitted to the memory of the first process: one to
the rounds in which new ids appear, and one to the later rounds. The server remembers something about each of the
last 100,000 ids, so the first line rises. The second line must be flat.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from flanders.audit import verify_trail
from flanders.flower import Ban, FilteredStrategy
from flanders.flower.saved_memory import FILE
from flanders.state import load_state
from hardening.federation import LocalGrid, Reply, honest_content, is_finite, quiet, start_model

FIRST = 1000
"""The id of the first client."""
SETTLED = 0.1
"""This share of the rounds is ignored at the start, and again after the last new id, since tables fill up there."""
FLAT = 4.0
"""The memory counts as flat if it grows by less than this many KiB a round.

Flower itself stores metrics each round. And a single jump of the allocator by a megabyte, in the middle of 450
rounds, raises the slope of the fitted line by 3.4 KiB.
"""
HOSTILE = 5
"""One client in this many is hostile."""


@dataclass(frozen=True)
class Size:
    """The size of the federations."""

    rounds: int = 1000
    clients: int = 30
    """The number of clients in a round."""
    ids: int = 10_000
    """The number of all clients that ever take part."""
    kill_every: int = 50
    """The number of rounds from one kill to the next."""


@dataclass(frozen=True)
class Soaked:
    """The results of the comparison of both federations."""

    rounds: int
    ids: int
    kills: int
    rounds_missing: int
    decisions: int
    decisions_that_differ: int
    same_model: bool
    kib_a_round: float
    """By how many KiB the memory grows in each round after all ids have appeared."""
    kib_a_new_id: float
    """By how many KiB the memory grows for each new id, while new ids appear."""
    memory_mib: float
    """The memory after the last round, in MiB."""
    trail_intact: bool
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no round was lost, all decisions and the model agree, and the memory is flat."""
        lost = self.rounds_missing or self.decisions_that_differ
        return not lost and self.same_model and self.trail_intact and self.kib_a_round < FLAT


class ChangingGrid(LocalGrid):
    """A grid whose nodes come and go. Its nodes are a range of ids that moves on from round to round."""

    def __init__(self, size: Size) -> None:
        super().__init__({})
        self.size = size

    def begin(self, number: int) -> None:
        """Set the nodes of a round. In the second half of the rounds, the nodes of the first half come back."""
        size, stay = self.size, self.size.clients // 3  # a third of the nodes stays for all rounds
        half = max(size.rounds // 2, 2)
        step = (size.ids - size.clients) / (half - 1)
        first = stay + round((number - 1) % half * step)
        come = range(first, first + size.clients - stay)
        self.nodes = {FIRST + client: node(client) for client in [*range(stay), *come]}


def node(client: int) -> Reply:
    """Return a node that is honest, or hostile in one of four ways."""

    def reply(message: Message) -> list[Message]:
        content = honest_content(message, client)
        if client % HOSTILE == 0:
            content = spoilt(content, client)
        return [] if client % (4 * HOSTILE) == 0 else [Message(content, reply_to=message)]

    return reply


def spoilt(content: RecordDict, client: int) -> RecordDict:
    """Return what a hostile client sends."""
    record = content.array_records["arrays"]
    kind = client // HOSTILE % 4
    for name, array in list(record.items()):
        numbers = array.numpy()
        if numbers.dtype.kind != "f":
            continue
        if kind == 1:
            record[name] = Array(np.full_like(numbers, np.nan))
        elif kind == 2:
            record[name] = Array(np.ones((*numbers.shape, 2), np.float32))
        else:
            noise = np.random.default_rng(client).normal(0, 50, numbers.shape)
            record[name] = Array(np.asarray(numbers + noise, dtype=np.float32))
    return content


def serve(folder: Path, size: Size) -> None:
    """Carry out the rounds that are not done yet, as a ServerApp does. Print the memory after each round."""
    grid = ChangingGrid(size)

    class Sampled(FedAvg):
        """FedAvg on a `ChangingGrid`."""

        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> list[Message]:
            """Set the nodes of this round, then ask all of them."""
            assert isinstance(grid, ChangingGrid)
            grid.begin(server_round)
            return list(super().configure_train(server_round, arrays, config, grid))

    with quiet():
        inner = Sampled(fraction_evaluate=0.0)
    strategy = FilteredStrategy(
        inner,
        state_dir=folder,
        results=folder / "results.sqlite",
        audit=folder / "audit.jsonl",
        ban=Ban(after=2, rounds=5),
        seed=0,
    )
    random.seed(0)

    def told(number: int, arrays: ArrayRecord) -> None:
        print(f"round {number} {resident()}", flush=True)

    with quiet():
        strategy.start(grid, start_model(), num_rounds=size.rounds, evaluate_fn=told)


def resident() -> int:
    """Return the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start_server(folder: Path, size: Size) -> subprocess.Popen[str]:
    """Start a server in a process of its own."""
    numbers = [str(value) for value in asdict(size).values()]
    return subprocess.Popen(
        [sys.executable, "-m", "hardening.soak", "--serve", str(folder), *numbers],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )


def run_through(folder: Path, size: Size) -> dict[int, int]:
    """Let a server carry out all rounds, and return its memory in bytes after each round."""
    with start_server(folder, size) as server:
        return read_memory(server, size.rounds)


def read_memory(server: subprocess.Popen[str], until: int) -> dict[int, int]:
    """Read the output of a server up to round `until`, and return the memory in bytes after each round."""
    memory: dict[int, int] = {}
    assert server.stdout is not None
    for line in server.stdout:
        word, number, size = line.split()
        assert word == "round"
        memory[int(number)] = int(size)
        if int(number) >= until:
            break
    return memory


def run_with_kills(folder: Path, size: Size) -> int:
    """Let servers carry out the rounds.

    Kill each after some rounds and start the next. Return the number of kills.
    """
    rng, kills = np.random.default_rng(1), 0
    for until in [*range(size.kill_every, size.rounds, size.kill_every), size.rounds]:
        with start_server(folder, size) as server:
            seen = read_memory(server, until)
            if until < size.rounds:
                time.sleep(float(rng.uniform(0, 0.1)))  # until a random moment of the next round
                server.send_signal(signal.SIGKILL)
                kills += 1
            elif server.wait() or not seen:
                raise RuntimeError(f"the server ended with {server.returncode} after round {max(seen, default=0)}")
    return kills


def decisions_of(folder: Path) -> dict[tuple[int, str], tuple[object, ...]]:
    """Return the fate, score and reason of each client in each round."""
    with contextlib.closing(sqlite3.connect(folder / "results.sqlite")) as connection:
        rows = connection.execute("SELECT round, client, fate, score, reason FROM client").fetchall()
    return {(number, str(client)): tuple(rest) for number, client, *rest in rows}


def soak(size: Size, folder: Path) -> Soaked:
    """Run both federations, and return the comparison."""
    start = time.monotonic()
    through, killed = folder / "through", folder / "killed"
    with ThreadPoolExecutor(2) as pool:
        running, dying = pool.submit(run_through, through, size), pool.submit(run_with_kills, killed, size)
        memory, kills = running.result(), dying.result()
    one, other = decisions_of(through), decisions_of(killed)
    done = {number for number, _ in one} & {number for number, _ in other}
    models = [load_state(each / FILE).model for each in (through, killed)]
    half, settled = size.rounds // 2, round(SETTLED * size.rounds)
    growing = slope(memory, range(settled, half + 1))
    heads = [(each / "audit.jsonl") for each in (through, killed)]
    finite = all(is_finite(ArrayRecord({k: Array(v) for k, v in model.items()})) for model in models)
    return Soaked(
        rounds=size.rounds,
        ids=len({client for _, client in one}),
        kills=kills,
        rounds_missing=size.rounds - len(done),
        decisions=len(one),
        decisions_that_differ=sum(one.get(key) != other.get(key) for key in one.keys() | other.keys()),
        same_model=finite and all(np.array_equal(models[0][name], models[1][name]) for name in models[0]),
        kib_a_round=slope(memory, range(half + settled, size.rounds + 1)),
        kib_a_new_id=growing * half / size.ids,
        memory_mib=memory[max(memory)] / 2**20,
        trail_intact=all(verify_trail(path).intact for path in heads),
        seconds=time.monotonic() - start,
    )


def slope(memory: Mapping[int, int], rounds: Iterable[int]) -> float:
    """Return the slope of a line fitted to the memory, in KiB a round. 0 if there are fewer than two rounds."""
    known = [number for number in rounds if number in memory]
    return float(np.polyfit(known, [memory[number] / 1024 for number in known], 1)[0]) if len(known) > 1 else 0.0


def main() -> int:
    """Read the command line, run both federations, and print the results."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), Size(*map(int, sys.argv[3:])))
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m hardening.soak", description="Run a long federation whose server is killed."
    )
    for name, value in asdict(Size()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = vars(parser.parse_args())
    target = options.pop("json")
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Size(**options), Path(folder))
    for name, value in asdict(found).items():
        print(
            f"{name.replace('_', ' ')}: {value:,.2f}"
            if isinstance(value, float)
            else f"{name.replace('_', ' ')}: {value}"
        )
    if target is not None:
        target.write_text(json.dumps(asdict(found), indent=2) + "\n")
    return 0 if found.passed else 1


if __name__ == "__main__":
    sys.exit(main())
