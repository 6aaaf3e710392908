"""The class `Setting`, which says what to simulate, and the classes of its parts.

A spec is a TOML file that describes runs. The keys in a spec are the names of the fields of these classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flanders.aggregators import Aggregator, FedAvg
from flanders.attacks import Attack
from flanders.checks import InputError, check_instance, check_number, resolve_count
from flanders.data import Digits, Dirichlet, Loader, Partition
from flanders.filters import Filter, Guard
from flanders.models import Mlp2, ModelSpec, as_model
from flanders.results.run import Options
from flanders.simulation.poisoning import DataPoison
from flanders.simulation.training.options import Training

ROLES = ("data", "init", "clients", "training", "attack", "attacker", "filter", "aggregator", "server")
"""The roles of random numbers in a run. A role is what the numbers are used for: "init" is for the initial model.

Each role has a random generator of its own. So if more numbers are drawn for one role, the numbers of all other
roles stay the same.
"""


@dataclass(frozen=True)
class Data:
    """The data that the clients train on.

    Parameters
    ----------
    dataset
        The examples.
    partition
        How the examples are divided among the clients.
    """

    dataset: Loader = field(default_factory=Digits)
    partition: Partition = field(default_factory=Dirichlet)

    def __post_init__(self) -> None:
        check_instance("Data", "dataset", self.dataset, Loader)
        check_instance("Data", "partition", self.partition, Partition)


@dataclass(frozen=True)
class Federation:
    """The number of clients and rounds, and the seed.

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
        The seed of all random numbers of the run.
    """

    num_clients: int = 100
    clients_per_round: float | None = None
    rounds: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Federation", "num_clients", self.num_clients, 1, whole=True)
        check_number("Federation", "rounds", self.rounds, 1, whole=True)
        check_number("Federation", "seed", self.seed, 0, whole=True)
        per_round = self.clients_per_round
        if per_round is None:
            return
        high = self.num_clients if isinstance(per_round, int | np.integer) else 1
        is_number = isinstance(per_round, int | float | np.number) and not isinstance(per_round, bool)
        if not is_number or not 0 < per_round <= high:
            raise InputError(
                "The `clients_per_round` parameter of Federation must be a number of clients from 1 to "
                f"{self.num_clients}, or a fraction above 0 and up to 1. Got {per_round!r} instead."
            )

    @property
    def selected(self) -> int:
        """The number of clients in a round, m."""
        share = self.clients_per_round
        return self.num_clients if share is None else resolve_count(share, self.num_clients)


@dataclass(frozen=True)
class Threat:
    """How many clients attack, when, how, and with what knowledge.

    Parameters
    ----------
    attack
        What malicious clients send instead of the models that they have trained. Default: their trained models.
    data_poison
        How malicious clients change their data before they train on it. Default: not at all.
    fraction
        The share r of malicious clients. The attacker controls b = ceil(r K) of the K clients.
    start
        The first round with an attack, counted from 1.
    rotating
        Whether the attacker's clients are drawn anew in each round, as in the FLANDERS paper. If False, they are
        drawn once and stay the same.
    omniscient
        Whether the attacker knows the models of honest clients, the parameters that the filter looks at, and the
        model that the server would compute from the round. If False, the attacker knows only what its own clients
        know.
    sybils
        Whether malicious clients take a new id in every round with an attack. The server then has no history of
        them. In round t, the new id of client c is `K t + c`, where K is the number of clients. The client's data
        stay the same.
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
        """Whether there is an attack or a data poison."""
        return self.attack is not None or self.data_poison is not None

    def malicious_of(self, num_clients: int) -> int:
        """Return how many of `num_clients` clients the attacker controls, b; see `fraction`."""
        return resolve_count(float(self.fraction), num_clients)


@dataclass(frozen=True)
class Server:
    """The examples that the server holds.

    Parameters
    ----------
    examples
        The number of training examples that the server holds. No client has these examples. In each round, the
        server measures the losses of models on them (`Round.evaluate`). It also trains the global model on them,
        like a client (`Round.root`). Default: none.
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
        The data of the clients, the model that they train, and how they train it. The model may also be a
        `torch.nn.Module` of your own, or a function that makes one. `OwnModel` wraps it.
    federation
        The number of clients and rounds, and the seed.
    threat
        How many clients attack, when and how. Default: no client attacks.
    server
        The examples that the server holds. Default: none.
    filter
        Decides which clients to keep. Default: `Guard()`, which does not need to know the number of attackers.
    aggregator
        Combines the kept models into one. Default: the weighted average, `FedAvg()`.
    fallback
        The aggregator for rounds in which the filter cannot decide yet, e.g. the first. Default: `aggregator`.
    informed
        Whether the aggregator's `num_malicious` is set in each round to the number of malicious clients that the
        filter kept. No real server knows this number, but the code of the FLANDERS paper uses it.
    run
        How the run is carried out, e.g. on which device. These options do not change the decisions of the filter.
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
        object.__setattr__(self, "model", as_model(self.model))
        check_instance("Setting", "model", self.model, ModelSpec, "Mlp2(), or a torch.nn.Module of your own")
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
                f"The filter {self.filter} needs examples that the server holds, but the server has none. "
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
        """The number of clients that the attacker controls, b; see `Threat.fraction`."""
        return self.threat.malicious_of(self.federation.num_clients)

    def streams(self) -> dict[str, np.random.Generator]:
        """Return a fresh random generator for each of `ROLES`."""
        seeds = np.random.SeedSequence(self.federation.seed).spawn(len(ROLES))
        return {role: np.random.default_rng(seed) for role, seed in zip(ROLES, seeds, strict=True)}
