"""The tables of a spec that name nothing registered: who takes part, who attacks when, how a run is carried out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from flanders.checks import InputError, check_number, resolve_count
from flanders.results.tree import Table


@dataclass(frozen=True)
class Federation:
    """Who takes part, and for how long."""

    clients: int = 100
    per_round: float | None = None
    """A number of clients or a fraction of all; default: everyone."""
    rounds: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("federation", "clients", self.clients, 1, whole=True)
        check_number("federation", "rounds", self.rounds, 1, whole=True)
        check_number("federation", "seed", self.seed, 0, whole=True)
        if self.per_round is not None:
            high = self.clients if isinstance(self.per_round, int) else 1
            if not 0 < self.per_round <= high:
                raise InputError(
                    "The `per_round` parameter of federation must be a number of clients from 1 to "
                    f"{self.clients}, or a fraction above 0 and up to 1. Got {self.per_round!r} instead."
                )

    @property
    def selected(self) -> int:
        """The number of clients in a round, m."""
        return self.clients if self.per_round is None else max(1, resolve_count(self.per_round, self.clients))


@dataclass(frozen=True)
class Malice:
    """What an attack section says besides the attack's own parameters."""

    fraction: float | None = None
    start: int = 1
    rotating: bool = True
    omniscient: bool = True
    sybils: bool = False

    def __post_init__(self) -> None:
        if self.fraction is not None:
            check_number("attack", "fraction", self.fraction, 0, 1)
        check_number("attack", "start", self.start, 1, whole=True)

    def written(self) -> Table:
        """Return all fields for the canonical form; `sybils` only if true."""
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "sybils" or value}
