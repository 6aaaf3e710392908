"""The protocol of the leaderboard: the threats, the seeds, and the spec of a run without its defence."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from flanders.checks import InputError, did_you_mean
from flanders.results.tree import Table

ROOM = "flanders.leaderboard"
"""The package whose folder holds `protocol.toml`, `defences.toml` and the rows."""
CORE, ALL = "core", "all"
"""The attacks that the ranking uses, and all attacks of the protocol."""
MINORITY, MAJORITY, EVERYONE = "minority", "majority", "all"
SHARES = (MINORITY, MAJORITY, EVERYONE)
"""Which cases a table is about: those in which fewer than half of the clients are malicious, the others, or all."""
NOBODY = "none"
"""The name of the case in which nobody attacks."""


@dataclass(frozen=True)
class Case:
    """One threat: an attack, its first round, the share of malicious clients, and whether these clients rotate.

    If they rotate, different clients are malicious in each round. Otherwise the same clients are malicious in all
    rounds.

    Examples
    --------
    >>> Case("lie", 0.2, 3, rotating=True).name
    'lie/0.2/3/rotating'
    """

    attack: str = NOBODY
    fraction: float = 0.0
    start: int = 1
    rotating: bool = False

    @property
    def name(self) -> str:
        """The case in one word, as commands name it."""
        if self.attack == NOBODY:
            return NOBODY
        return f"{self.attack}/{self.fraction:g}/{self.start}/{'rotating' if self.rotating else 'fixed'}"


@dataclass(frozen=True)
class BoardProtocol:
    """What is the same for all defences. Its fields are those of `protocol.toml`."""

    version: str
    seeds: tuple[int, ...]
    fractions: tuple[float, ...]
    starts: tuple[int, ...]
    rotating: tuple[bool, ...]
    core: tuple[str, ...]
    federation: Table
    defaults: Table
    datasets: Mapping[str, Table]
    attacks: Mapping[str, Table]

    def cases(self, which: str = CORE) -> list[Case]:
        """Return all cases of the `core` attacks or of `all`. The first is the one in which nobody attacks."""
        attacks = self.core if which == CORE else self.attacks
        return [
            Case(),
            *(
                Case(attack, fraction, start, rotating)
                for attack in attacks
                for fraction in self.fractions
                for start in self.starts
                for rotating in self.rotating
            ),
        ]

    def spec(self, dataset: str, case: Case, seed: int) -> Table:
        """Return the spec of a run, with plain averaging in the place of a defence."""
        if dataset not in self.datasets:
            guess = did_you_mean(dataset, self.datasets)
            known = ", ".join(self.datasets)
            raise InputError(f"The leaderboard has no data set {dataset!r}.{guess} Known: {known}.")
        threat: Table = {}
        if case.attack != NOBODY:
            how = {"fraction": case.fraction, "start": case.start, "rotating": case.rotating}
            threat = {**self.attacks[case.attack], **how}
        federation = {**self.federation, "seed": seed}
        return {**self.defaults, **self.datasets[dataset], "federation": federation, "threat": threat}


@cache
def read_protocol() -> BoardProtocol:
    """Return the protocol of this version of the package."""
    values: Table = tomllib.loads((files(ROOM) / "protocol.toml").read_text(encoding="utf-8"))
    found: Table = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return BoardProtocol(**found)
