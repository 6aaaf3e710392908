"""A simulator small enough to be killed a hundred times: the interface of `flanders.simulation`, no training.

As a script it is the `flanders` command with this simulator in place of the real one. Every round takes
FAKE_SECONDS; rounds after a run's first wait until the file FAKE_GATE is there; a run whose seed is 13 fails in its
second round; the process is killed at the FAKE_DEATH-th SQL statement.
"""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flanders import Round, View, defend
from flanders.registry import Registry
from flanders.types import InputError, resolve_count

D = 12


@dataclass(frozen=True)
class Training:
    optimizer: str = "adam"
    learning_rate: float = 0.001
    batch_size: int = 32
    epochs: int = 1


@dataclass(frozen=True)
class LabelFlip:
    """Train on wrong labels."""

    target: int = 0


@dataclass(frozen=True, kw_only=True)
class Setting:
    dataset: Any
    partition: Any
    model: Any
    training: Training
    filter: Any
    aggregator: Any
    num_clients: int = 100
    clients_per_round: int | None = None
    rounds: int = 50
    attack: Any = None
    malicious_fraction: float = 0.0
    attack_start: int = 1
    rotating: bool = True
    omniscient: bool = True
    sybils: bool = False
    data_poison: Any = None
    fallback: Any = None
    informed: bool = False
    seed: int = 0
    device: str = "auto"
    chunk: int | None = None
    data_dir: Any = None


@dataclass(frozen=True)
class RoundRecord:
    number: int
    accuracy: float
    loss: float
    attack_success: float
    seconds: dict[str, float]
    clients: tuple[int, ...]
    malicious: Any
    kept: Any
    scores: Any
    probabilities: Any
    unusable: tuple[int, ...]
    note: str
    threshold: float
    reasons: dict[int, str] = field(default_factory=dict)


class Simulation:
    def __init__(self, setting: Setting, dataset: Any = None) -> None:
        self.setting = setting
        self.round_number = 0
        self.rng = np.random.default_rng(setting.seed)
        self.model = np.zeros(D)
        self.filter_state = setting.filter.init(self.rng)
        self.memory = None

    def run(self):
        while self.round_number < self.setting.rounds:
            yield self.step()

    def step(self) -> RoundRecord:
        s, rng, begun = self.setting, self.rng, time.perf_counter()
        number = self.round_number + 1
        if s.seed == 13 and number == 2:
            raise ArithmeticError("the thirteenth seed brings no luck")
        if number > 1 and "FAKE_GATE" in os.environ:
            wait_at(os.environ["FAKE_GATE"])
        time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
        m = s.clients_per_round
        clients = np.sort(rng.choice(s.num_clients, m, replace=False))
        bad = rng.choice(s.num_clients, resolve_count(s.malicious_fraction, s.num_clients), replace=False)
        malicious = np.isin(clients, bad) & (number >= s.attack_start)
        updates = self.model + 0.1 * (1 - self.model) + 0.01 * rng.normal(size=(m, D))
        if malicious.any() and s.attack is not None:
            ids = tuple(clients[malicious].tolist())
            view = View(updates[malicious], self.model, m, ids, updates[~malicious], memory=self.memory)
            updates[malicious] = s.attack.craft(view, rng)
            self.memory = s.attack.remember(view, updates[malicious])
        round_ = Round(updates, tuple(clients.tolist()), global_model=self.model)
        outcome = defend(
            s.filter,
            self.filter_state,
            round_,
            lambda rows: s.aggregator.aggregate(round_.take(rows), rng),
        )
        self.model, self.filter_state, self.round_number = outcome.model, outcome.state, number
        kept = np.isin(np.arange(m), outcome.kept)
        scores = np.full(m, math.nan) if outcome.scores is None else outcome.scores.values
        loss = float(np.mean((1 - self.model) ** 2))
        return RoundRecord(
            number,
            1 / (1 + loss),
            loss,
            math.nan,
            {"train": time.perf_counter() - begun},
            round_.clients,
            malicious,
            kept,
            scores,
            None,
            (),
            outcome.note,
            float(np.max(scores[kept])) if kept.any() else math.nan,
        )

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


def find_device(name: str) -> None:
    if name == "cuda":
        raise InputError("There is no GPU here.")


def modules() -> dict[str, types.ModuleType]:
    fake, federation = types.ModuleType("flanders.simulation"), types.ModuleType("federation")
    federation.find_device = find_device
    fake.__dict__.update(
        Training=Training,
        Setting=Setting,
        Simulation=Simulation,
        DATA_POISONS=Registry("data poison", {"label-flip": LabelFlip}),
    )
    return {"flanders.simulation": fake, "flanders.simulation.federation": federation}


@dataclass(frozen=True)
class Mlp2:
    """Nothing at all, but without importing PyTorch."""

    hidden: int = 128


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
    sys.modules.update(modules())
    sys.modules["flanders.models"] = types.ModuleType("flanders.models")
    sys.modules["flanders.models"].MODELS = Registry("model", {"mlp2": Mlp2})
if __name__ == "__main__":
    from flanders.cli import main

    if "FAKE_DEATH" in os.environ:
        die_at_statement(int(os.environ["FAKE_DEATH"]))
    sys.exit(main())
