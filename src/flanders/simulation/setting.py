"""Everything that defines a run. The field names are also the keys of a spec file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flanders.aggregators import Aggregator, FedAvg
from flanders.attacks import Attack
from flanders.checks import InputError, check_instance, check_number, resolve_count
from flanders.data import Digits, Dirichlet, Loader, Partition
from flanders.filters import Filter, Guard
from flanders.models import Mlp2, ModelSpec
from flanders.results.run import Options
from flanders.simulation.poisoning import DataPoison
from flanders.simulation.training.options import Training

ROLES = ("data", "init", "clients", "training", "attack", "attacker", "filter", "aggregator", "server")
"""The uses of randomness. Each has a stream of its own, so that a change in one does not change the others."""


@dataclass(frozen=True)
class Data:
    """What the clients learn from.

    Parameters
    ----------
    dataset
        The examples.
    partition
        How the examples are shared out among the clients.
    """

    dataset: Loader = field(default_factory=Digits)
    partition: Partition = field(default_factory=Dirichlet)

    def __post_init__(self) -> None:
        check_instance("Data", "dataset", self.dataset, Loader)
        check_instance("Data", "partition", self.partition, Partition)


@dataclass(frozen=True)
class Federation:
    """Who takes part, and for how long.

    Parameters
    ----------
    num_clients
        The number of clients, K.
    clients_per_round
        The number m of clients that the server selects in each round: a whole number, or a fraction of all clients.
        Default: all of them.
    rounds
        The number of rounds, T.
    seed
        All randomness of a run follows from it.
    """

    num_clients: int = 100
    clients_per_round: float | None = None
    rounds: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Federation", "num_clients", self.num_clients, 1, whole=True)
        check_number("Federation", "rounds", self.rounds, 1, whole=True)
        check_number("Federation", "seed", self.seed, 0, whole=True)
        asked = self.clients_per_round
        if asked is None:
            return
        high = self.num_clients if isinstance(asked, int | np.integer) else 1
        if isinstance(asked, bool) or not isinstance(asked, int | float | np.number) or not 0 < asked <= high:
            raise InputError(
                "The `clients_per_round` parameter of Federation must be a number of clients from 1 to "
                f"{self.num_clients}, or a fraction above 0 and up to 1. Got {asked!r} instead."
            )

    @property
    def selected(self) -> int:
        """The number of clients in a round, m."""
        share = self.clients_per_round
        return self.num_clients if share is None else resolve_count(share, self.num_clients)


@dataclass(frozen=True)
class Threat:
    """Who attacks, when, how, and with what knowledge.

    Parameters
    ----------
    attack
        What malicious clients send instead of the models that they have trained.
    data_poison
        How malicious clients change their data before they train on it.
    fraction
        The share r of malicious clients. The attacker controls b = ceil(r K) of the K clients.
    start
        The first round with poison in it, counted from 1.
    rotating
        Whether the attacker's clients are drawn anew each round, as in the paper. False draws them once.
    omniscient
        Whether the attacker knows the models of honest clients and the parameters that the filter looks at. With
        False it knows only what its own clients know.
    sybils
        Whether malicious clients take a new id in every poisoned round, so that the server has no history of them.
        Client c is then called `K t + c` in round t. The selection of clients and their data stay the same.
    """

    attack: Attack | None = None
    data_poison: DataPoison | None = None
    fraction: float = 0.0
    start: int = 1
    rotating: bool = True
    omniscient: bool = True
    sybils: bool = False

    def __post_init__(self) -> None:
        check_instance("Threat", "attack", self.attack, Attack, optional=True)
        check_instance("Threat", "data_poison", self.data_poison, DataPoison, optional=True)
        check_number("Threat", "fraction", self.fraction, 0, 1)
        check_number("Threat", "start", self.start, 1, whole=True)

    @property
    def exists(self) -> bool:
        """Whether malicious clients would do anything."""
        return self.attack is not None or self.data_poison is not None

    def malicious_of(self, num_clients: int) -> int:
        """Return how many of `num_clients` clients the attacker controls, b = ceil(r K)."""
        return resolve_count(float(self.fraction), num_clients)


@dataclass(frozen=True)
class Server:
    """What the server has of its own.

    Parameters
    ----------
    examples
        The number of training examples that the server holds. They are taken out of the clients' data. The filter
        then gets the losses of models on them (`Round.evaluate`) and a step trained on them (`Round.root`).
    """

    examples: int = 0

    def __post_init__(self) -> None:
        check_number("Server", "examples", self.examples, 0, whole=True)


@dataclass(frozen=True)
class Setting:
    """A federation, its attacker and its defence.

    Parameters
    ----------
    data, model, training
        What the clients learn from, what they learn, and how.
    federation
        Who takes part, and for how long.
    threat
        Who attacks, when and how.
    server
        What the server has of its own.
    filter
        Decides which clients to keep. Default: `Guard()`, which needs no number of attackers.
    aggregator
        Turns the kept models into one.
    fallback
        The aggregator for rounds in which the filter cannot judge yet. Default: `aggregator`.
    informed
        Whether to tell the aggregator the truth. Its `num_malicious` is then, in each round, the number of
        malicious clients among those that the filter kept. No real server knows this number. The code of the
        FLANDERS paper passes it to the aggregators behind its filter.
    run
        How the run is carried out. It changes no decision.
    """

    data: Data = field(default_factory=Data)
    model: ModelSpec = field(default_factory=Mlp2)
    training: Training = field(default_factory=Training)
    federation: Federation = field(default_factory=Federation)
    threat: Threat = field(default_factory=Threat)
    server: Server = field(default_factory=Server)
    filter: Filter[Any] = field(default_factory=Guard)
    aggregator: Aggregator = field(default_factory=FedAvg)
    fallback: Aggregator | None = None
    informed: bool = False
    run: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        check_instance("Setting", "data", self.data, Data)
        check_instance("Setting", "model", self.model, ModelSpec)
        check_instance("Setting", "training", self.training, Training)
        check_instance("Setting", "federation", self.federation, Federation)
        check_instance("Setting", "threat", self.threat, Threat)
        check_instance("Setting", "server", self.server, Server)
        check_instance("Setting", "filter", self.filter, Filter)
        check_instance("Setting", "aggregator", self.aggregator, Aggregator)
        check_instance("Setting", "fallback", self.fallback, Aggregator, optional=True)
        check_instance("Setting", "run", self.run, Options)
        if self.informed and not hasattr(self.aggregator, "num_malicious"):
            raise InputError(
                "Setting(informed=True) needs an aggregator with the parameter `num_malicious`. "
                f"Got {self.aggregator}."
            )
        if self.filter.needs_examples and self.server.examples == 0:
            raise InputError(
                f"The filter {self.filter} needs examples of the server's own, but the server has none. "
                "Set `server.examples`, e.g. to 100."
            )
        for name, aggregator in (("aggregator", self.aggregator), ("fallback", self.fallback)):
            if aggregator is not None and aggregator.needs_root and self.server.examples == 0:
                raise InputError(
                    f"The {name} {aggregator} needs a step that the server trains on its own examples, "
                    "but the server has none. Set `server.examples`, e.g. to 100."
                )
        if self.num_malicious and not self.threat.exists:
            raise InputError(
                f"Threat(fraction={self.threat.fraction}) has malicious clients, but nothing for them to do. "
                "Pass an `attack`, a `data_poison`, or both."
            )

    @property
    def num_malicious(self) -> int:
        """The number of clients that the attacker controls, b = ceil(r K)."""
        return self.threat.malicious_of(self.federation.num_clients)

    def streams(self) -> dict[str, np.random.Generator]:
        """Return a fresh random generator for each role."""
        seeds = np.random.SeedSequence(self.federation.seed).spawn(len(ROLES))
        return {role: np.random.default_rng(seed) for role, seed in zip(ROLES, seeds, strict=True)}
