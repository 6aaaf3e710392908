"""Tries faults on a federation: disks that are full, strategies that fail, clients that do not reply.

    python -m hardening.faults

Each fault happens in one round of a federation with five rounds: in the first round, or in a later one. The
federation survives the fault if all five rounds are carried out and the global model is finite at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from flanders.audit import AuditTrail
from flanders.flower import Ban, FilteredStrategy, saved_memory
from flanders.results.schema import ResultsError
from flanders.results.store import Store
from hardening.federation import LocalGrid, Reply, honest_node, is_finite, quiet, start_model

ROUNDS = 5
CLIENTS = 8
FIRST = 100
LATER = 3
"""The round in which a fault happens, if not in the first round."""


@dataclass
class Clock:
    """Knows the current round, and the round in which the fault happens."""

    at: int
    """The round of the fault."""
    number: int = 0
    """The current round."""

    @property
    def now(self) -> bool:
        """Whether the current round is the round of the fault."""
        return self.number == self.at


class Failing(FedAvg):
    """FedAvg that fails in the round of the fault."""

    def __init__(self, clock: Clock, fault: Callable[[ArrayRecord], ArrayRecord | None] | None = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.clock, self.fault = clock, fault

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Set the clock to this round, and configure it as FedAvg does."""
        self.clock.number = server_round
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as FedAvg does. In the round of the fault, apply the fault to the new model."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        if self.fault is not None and self.clock.now and arrays is not None:
            return self.fault(arrays), metrics
        return arrays, metrics


def raising(error: Exception) -> Callable[..., Any]:
    """Return a function that raises an error."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def nan_model(arrays: ArrayRecord) -> ArrayRecord:
    """Return a model in which all numbers are NaN."""
    return ArrayRecord({name: Array(np.full(array.shape, np.nan, np.float32)) for name, array in arrays.items()})


STRATEGY_FAULTS: dict[str, Callable[[ArrayRecord], ArrayRecord | None]] = {
    "the strategy raises an error": raising(RuntimeError("broken")),
    "the strategy runs out of memory": raising(MemoryError()),
    "the strategy returns nothing": lambda arrays: None,
    "the strategy returns NaN": nan_model,
    "the strategy returns other arrays": lambda arrays: ArrayRecord({"x": Array(np.ones(3, np.float32))}),
}
FULL = OSError(errno.ENOSPC, "No space left on device")
DISK_FAULTS: dict[str, tuple[object, str, Exception]] = {
    "the disk is full when the memory is saved": (saved_memory, "save_state", FULL),
    "the disk fails when the memory is saved": (saved_memory, "save_state", OSError(errno.EIO, "I/O")),
    "the disk is full when the audit trail is written": (AuditTrail, "_write", FULL),
    "the disk is full when results are written": (Store, "write_round", ResultsError("The disk is full")),
}
"""The function that fails, given by a module or class and its name there, and the error that it raises."""


def silent(message: Message) -> list[Message]:
    """Send nothing."""
    return []


def erring(message: Message) -> list[Message]:
    """Send an error."""
    return [Message(Error(2, "out of memory"), reply_to=message)]


def nan_reply(message: Message) -> list[Message]:
    """Send a model in which all numbers are NaN."""
    (reply,) = honest_node(0)(message)
    record = reply.content.array_records["arrays"]
    for name, array in list(record.items()):
        record[name] = Array(np.full(array.shape, np.nan, np.float32))
    return [reply]


def doubled(message: Message) -> list[Message]:
    """Send the same reply twice."""
    return [*honest_node(0)(message), *honest_node(0)(message)]


CLIENT_FAULTS: dict[str, Reply] = {
    "all clients are silent": silent,
    "all clients send errors": erring,
    "all clients send NaN": nan_reply,
    "all clients reply twice": doubled,
}


@dataclass(frozen=True)
class Injected:
    """A fault, and whether the federation survived it."""

    name: str
    survived: bool
    words: str = ""
    """What went wrong."""


def inject(name: str, at: int, folder: Path) -> Injected:
    """Run a federation in which a fault happens in round `at`, and return whether it survived."""
    clock, grid = Clock(at), LocalGrid({})

    def node(client: int) -> Reply:
        honest = honest_node(client)
        return lambda message: (CLIENT_FAULTS[name] if name in CLIENT_FAULTS and clock.now else honest)(message)

    grid.nodes = {FIRST + client: node(client) for client in range(CLIENTS)}
    with quiet():
        inner = Failing(clock, STRATEGY_FAULTS.get(name))
        strategy = FilteredStrategy(
            inner,
            state_dir=folder / "state",
            results=folder / "results.sqlite",
            audit=folder / "audit.jsonl",
            ban=Ban(2, 2),
            seed=0,
        )
        try:
            with disk_fault(name, clock):
                result = strategy.start(grid, start_model(), num_rounds=ROUNDS)
        except Exception as error:
            return Injected(name, False, f"round {clock.number}: {type(error).__name__}: {str(error)[:160]}")
    done = sorted(result.train_metrics_clientapp)
    if done != list(range(1, ROUNDS + 1)):
        return Injected(name, False, f"only the rounds {done}")
    return Injected(name, is_finite(result.arrays), "" if is_finite(result.arrays) else "the model is not finite")


@contextlib.contextmanager
def disk_fault(name: str, clock: Clock) -> Iterator[None]:
    """Inside the block, let the disk fail in the round of the fault, if `name` is a fault of the disk."""
    if name not in DISK_FAULTS:
        yield
        return
    owner, attribute, error = DISK_FAULTS[name]
    real = getattr(owner, attribute)

    def fail_sometimes(*arguments: Any, **options: Any) -> Any:
        if clock.now:
            raise error
        return real(*arguments, **options)

    with mock.patch.object(owner, attribute, fail_sometimes):
        yield


def inject_all() -> list[Injected]:
    """Try every fault, in the first round and in a later round.

    Some faults are tried only in the later round. If the strategy fails in the first round, or all replies of the
    first round are refused for the same reason, the wrapper ends the run on purpose. Then the setup itself is
    wrong.
    """
    found = []
    for name in (*STRATEGY_FAULTS, *DISK_FAULTS, *CLIENT_FAULTS):
        on_purpose = name in STRATEGY_FAULTS or name in ("all clients send NaN", "all clients reply twice")
        for at in (LATER,) if on_purpose else (1, LATER):
            with tempfile.TemporaryDirectory() as folder:
                found.append(inject(name, at, Path(folder)))
    return found


def main() -> int:
    """Try all faults, and print which were survived."""
    argparse.ArgumentParser(
        prog="python -m hardening.faults", description="Try faults in rounds of a federation."
    ).parse_args()
    found = inject_all()
    for each in found:
        print(f"{'survived' if each.survived else 'LOST    '}  {each.name}  {each.words}")
    return 0 if all(each.survived for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
