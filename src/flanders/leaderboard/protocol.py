"""The protocol of the leaderboard: the datasets, attacks, seeds and all other settings that all defences share."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from flanders.checks import InputError, did_you_mean
from flanders.results.tree import Table

LEADERBOARD_PACKAGE = "flanders.leaderboard"
"""The package whose folder contains `protocol.toml`, `defences.toml` and the rows."""
CORE, ALL = "core", "all"
"""The names of two sets of attacks: those that the ranking uses, and all attacks of the protocol."""
MINORITY, MAJORITY, EVERYONE = "minority", "majority", "all"
SHARES = (MINORITY, MAJORITY, EVERYONE)
"""The names of three sets of cases (see `Case`): those in which less than half of the clients are malicious, those
in which at least half are malicious, and all cases."""
NOBODY = "none"
"""The name of the case without an attack."""


@dataclass(frozen=True)
class Case:
    """One threat: an attack, its first round, the share of malicious clients, and whether these clients rotate.

    If malicious clients rotate, different clients are malicious in each round. Otherwise the same clients are
    malicious in all rounds.

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
        """The name of the case in commands: its four values, separated by slashes."""
        if self.attack == NOBODY:
            return NOBODY
        return f"{self.attack}/{self.fraction:g}/{self.start}/{'rotating' if self.rotating else 'fixed'}"


@dataclass(frozen=True)
class BoardProtocol:
    """The settings that are the same for all defences. The fields are the keys of `protocol.toml`."""

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
        """Return the cases with the `core` attacks or with `all` attacks. The first case has no attack."""
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
        """Return the spec of a run without a defence, in which all updates are averaged."""
        if dataset not in self.datasets:
            guess = did_you_mean(dataset, self.datasets)
            known = ", ".join(self.datasets)
            raise InputError(f"The leaderboard has no dataset {dataset!r}.{guess} Known: {known}.")
        threat: Table = {}
        if case.attack != NOBODY:
            settings = {"fraction": case.fraction, "start": case.start, "rotating": case.rotating}
            threat = {**self.attacks[case.attack], **settings}
        federation = {**self.federation, "seed": seed}
        return {**self.defaults, **self.datasets[dataset], "federation": federation, "threat": threat}


@cache
def read_protocol() -> BoardProtocol:
    """Return the protocol of this version of the package."""
    values: Table = tomllib.loads((files(LEADERBOARD_PACKAGE) / "protocol.toml").read_text(encoding="utf-8"))
    fields: Table = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return BoardProtocol(**fields)
