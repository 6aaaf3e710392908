"""Everything that defines a run, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flanders.aggregators import Aggregator, FedAvg
from flanders.attacks import Attack
from flanders.checks import InputError, check_number, resolve_count
from flanders.data import Digits, Dirichlet, Loader, Partition
from flanders.filters import Filter, KeepAll
from flanders.models import Mlp2, ModelSpec
from flanders.simulation.poisoning import DataPoison
from flanders.simulation.training.trainer import Training

ROLES = ("data", "init", "clients", "training", "attack", "attacker", "filter", "rule")
"""What randomness is for; each has a stream of its own, so that changing one leaves the others as they were."""


@dataclass(frozen=True)
class Setting:
    """A federation, its attacker and its defence.

    Parameters
    ----------
    dataset, partition, model, training
        What the clients learn from, who holds what of it, and how they learn.
    num_clients
        How many clients there are, K.
    clients_per_round
        How many of them the server selects each round, m: a number, a fraction, or None for all.
    rounds
        How many rounds to run, T.
    attack
        What malicious clients send instead of the models they have honestly trained.
    data_poison
        How malicious clients change their data before they train on it.
    malicious_fraction
        The share r of malicious clients: the attacker controls b = ceil(r K) of all K.
    attack_start
        The first round with poison in it, from 1.
    rotating
        Whether the attacker's clients are drawn afresh each round, as in the paper, or once.
    sybils
        Whether malicious clients appear under ids never seen before in every poisoned round, so that the server
        has no history of them: client c is `K t + c` in round t. Who is selected and trains on what stays the same.
    omniscient
        Whether the attacker sees the benign models and the parameters the filter looks at, or only its own.
    filter, aggregator, fallback
        Whom to keep, how to aggregate them, and how while the filter cannot judge yet (default: the same).
    informed
        Tell the aggregator the truth: each round its `num_malicious` is the number of malicious clients among
        those that the filter kept. No server knows it; the paper's code hands it to the rules behind its filter.
    seed
        All randomness follows from it.
    device
        `"cpu"`, `"cuda"`, or `"auto"` for a GPU if there is one.
    chunk
        How many clients to train at a time; None finds out. See `Trainer`.
    data_dir
        Where the dataset's files are, if it has any.
    """

    dataset: Loader = field(default_factory=Digits)
    partition: Partition = field(default_factory=Dirichlet)
    model: ModelSpec = field(default_factory=Mlp2)
    training: Training = field(default_factory=Training)
    num_clients: int = 100
    clients_per_round: float | None = None
    rounds: int = 50
    attack: Attack | None = None
    data_poison: DataPoison | None = None
    malicious_fraction: float = 0.0
    attack_start: int = 1
    rotating: bool = True
    sybils: bool = False
    omniscient: bool = True
    filter: Filter[Any] = field(default_factory=KeepAll)
    aggregator: Aggregator = field(default_factory=FedAvg)
    fallback: Aggregator | None = None
    informed: bool = False
    seed: int = 0
    device: str = "auto"
    chunk: int | None = None
    data_dir: Path | None = None

    def __post_init__(self) -> None:
        for name, kind, optional in (
            ("dataset", Loader, False),
            ("partition", Partition, False),
            ("model", ModelSpec, False),
            ("training", Training, False),
            ("attack", Attack, True),
            ("data_poison", DataPoison, True),
            ("filter", Filter, False),
            ("aggregator", Aggregator, False),
            ("fallback", Aggregator, True),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind) and not (optional and value is None):
                wanted = f"{kind.__name__}{' or None' if optional else ''}"
                raise InputError(
                    f"The `{name}` parameter of Setting must be an instance of {wanted}. Got {value!r} instead."
                )
        check_number("Setting", "num_clients", self.num_clients, 1, whole=True)
        check_number("Setting", "rounds", self.rounds, 1, whole=True)
        check_number("Setting", "malicious_fraction", self.malicious_fraction, 0, 1)
        check_number("Setting", "attack_start", self.attack_start, 1, whole=True)
        check_number("Setting", "seed", self.seed, 0, whole=True)
        if self.chunk is not None:
            check_number("Setting", "chunk", self.chunk, 1, whole=True)
        if not 1 <= self.selected <= self.num_clients:
            raise InputError(
                f"The server cannot select {self.clients_per_round!r} of {self.num_clients} clients a round. "
                f"Give `clients_per_round` as a number from 1 to {self.num_clients}, or as a fraction above 0."
            )
        if self.informed and not hasattr(self.aggregator, "num_malicious"):
            raise InputError(
                "Setting(informed=True) needs an aggregator with the parameter `num_malicious`. "
                f"Got {self.aggregator}."
            )
        if self.num_malicious and self.attack is None and self.data_poison is None:
            raise InputError(
                f"Setting(malicious_fraction={self.malicious_fraction}) leaves malicious clients nothing to do. "
                "Pass an `attack`, a `data_poison`, or both."
            )

    @property
    def selected(self) -> int:
        """The number of clients a round, m."""
        k = self.num_clients
        return k if self.clients_per_round is None else resolve_count(self.clients_per_round, k)

    @property
    def num_malicious(self) -> int:
        """The number of clients the attacker controls, b = ceil(r K)."""
        return math.ceil(round(self.malicious_fraction * self.num_clients, 9))

    def streams(self) -> dict[str, np.random.Generator]:
        """Return a fresh generator for each role."""
        seeds = np.random.SeedSequence(self.seed).spawn(len(ROLES))
        return {role: np.random.default_rng(seed) for role, seed in zip(ROLES, seeds, strict=True)}
