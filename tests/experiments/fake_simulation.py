"""A simulator small enough to be killed a hundred times: the interface of `Simulation`, no training.

As a script it is the `flanders` command with this simulator in place of the real one, and without PyTorch. Every
round takes FAKE_SECONDS; rounds after a run's first wait until the file FAKE_GATE is there; a run whose seed is 13
fails in its second round; FAKE_DEATH is the number of the SQL statement at which the process is killed. With it, no
statement hangs on the clock: every round is written at once, and there are no heartbeats.
"""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import sys
import time
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import flanders
from flanders import Round, View, defend
from flanders.checks import InputError
from flanders.record import RoundRecord
from flanders.registry import Registry

D = 12


class Simulation:
    def __init__(self, setting: Any, dataset: Any = None) -> None:
        self.setting = setting
        self.round_number = 0
        self.rng = np.random.default_rng(setting.federation.seed)
        self.model = np.zeros(D)
        self.filter_state = setting.filter.init(self.rng)
        self.memory = None

    @property
    def like(self):
        return self.model

    def run(self):
        while self.round_number < self.setting.federation.rounds:
            yield self.step()

    def step(self) -> RoundRecord:
        s, rng, begun = self.setting, self.rng, time.perf_counter()
        federation, threat = s.federation, s.threat
        number = self.round_number + 1
        if federation.seed == 13 and number == 2:
            raise ArithmeticError("the thirteenth seed brings no luck")
        if number > 1 and "FAKE_GATE" in os.environ:
            wait_at(os.environ["FAKE_GATE"])
        time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
        m = federation.selected
        clients = np.sort(rng.choice(federation.num_clients, m, replace=False))
        bad = rng.choice(federation.num_clients, s.num_malicious, replace=False)
        malicious = np.isin(clients, bad) & (number >= threat.start)
        updates = self.model + 0.1 * (1 - self.model) + 0.01 * rng.normal(size=(m, D))
        if malicious.any() and threat.attack is not None:
            ids = tuple(clients[malicious].tolist())
            view = View(updates[malicious], self.model, m, ids, updates[~malicious], memory=self.memory)
            updates[malicious] = threat.attack.craft(view, rng)
            self.memory = threat.attack.remember(view, updates[malicious])
        round_ = Round(updates, tuple(clients.tolist()), global_model=self.model)
        outcome = defend(
            s.filter,
            self.filter_state,
            round_,
            lambda rows: s.aggregator.aggregate(round_.take(rows), rng),
        )
        self.model, self.filter_state, self.round_number = outcome.model, outcome.state, number
        loss = float(np.mean((1 - self.model) ** 2))
        truth = zip(outcome.clients, malicious.tolist(), strict=True)
        records = tuple(replace(record, malicious=bad) for record, bad in truth)
        seconds = {"train": time.perf_counter() - begun}
        return RoundRecord(number, records, outcome.note, 1 / (1 + loss), loss, seconds=seconds)

    def state_dict(self) -> dict[str, Any]:
        return {
            "round": self.round_number,
            "model": self.model,
            "filter": self.filter_state,
            "memory": self.memory,
            "rng": self.rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round_number, self.model = state["round"], state["model"]
        self.filter_state, self.memory = state["filter"], state["memory"]
        self.rng.bit_generator.state = state["rng"]


def wait_at(gate: str) -> None:
    end = time.monotonic() + 300  # whoever was to open it has failed
    while not os.path.exists(gate) and time.monotonic() < end:
        time.sleep(0.01)


def find_device(name: str) -> types.SimpleNamespace:
    if name == "cuda":
        raise InputError("There is no GPU here.")
    return types.SimpleNamespace(type="cpu")


def use(patch: Any) -> None:
    """Put the small simulator in place of the real one, in this process; `patch` is pytest's monkeypatch."""
    from flanders.experiments import engine

    patch.setattr(engine, "Simulation", Simulation)
    patch.setattr(engine, "find_device", find_device)


class Kind:
    """A base class in place of one that needs PyTorch."""


@dataclass(frozen=True)
class Mlp2(Kind):
    """Nothing at all, but without importing PyTorch."""

    hidden: int = 128


def modules() -> dict[str, types.ModuleType]:
    """Return what takes the place of modules that need PyTorch."""
    folder = Path(flanders.__file__).parent / "simulation"

    def module(name: str, **content: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(content)
        return made

    return {
        "torch": module(
            "torch", Tensor=type("Tensor", (), {}), get_num_threads=lambda: 1, set_num_threads=lambda count: None
        ),
        "flanders.models": module(
            "models",
            ModelSpec=Kind,
            Mlp2=Mlp2,
            MODELS=Registry("model", {"mlp2": Mlp2}),
            as_model=lambda model: model,
        ),
        "flanders.simulation": module("simulation", __path__=[str(folder)]),
        "flanders.simulation.simulation": module("simulation", Simulation=Simulation),
        "flanders.simulation.world": module("world", find_device=find_device),
        "flanders.simulation.poisoning": module(
            "poisoning", DataPoison=type("DataPoison", (), {}), DATA_POISONS=Registry("data poison", {})
        ),
    }


def forget_the_clock() -> None:
    """Have the same statements in each process with the same work, however fast it is."""
    from flanders.experiments import runner
    from flanders.results import heartbeat

    runner.WRITE_GAP = 0.0
    runner.CHECKPOINT_GAP = math.inf
    heartbeat.HEARTBEAT = 3600.0


def die_at_statement(number: int) -> None:
    """Have this process killed just before it sends its database the `number`-th statement."""
    connect, seen = sqlite3.connect, 0

    def count(statement: str) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect_counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = connect(*args, **kwargs)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connect_counting


if __name__ in ("__main__", "__mp_main__"):
    from flanders.results import schema

    schema.BUSY = 300.0  # seconds in which another process has to let go of the file
    sys.modules.update(modules())
if __name__ == "__main__":
    from flanders.cli import main

    if "FAKE_DEATH" in os.environ:
        forget_the_clock()
        die_at_statement(int(os.environ["FAKE_DEATH"]))
    sys.exit(main())
