"""The defences of the leaderboard, called entrants, and the TOML file in which their authors describe them.

The file has one table `[[defence]]` for each defence::

    [[defence]]
    name = "my-krum"                                    # the name of the defence on the leaderboard
    paper = "Doe et al., ICML 2026"
    largest_b = 8                                       # the most malicious clients that the defence can be told of
    untold = { aggregator = "my-krum" }
    told = { aggregator = { name = "my-krum", num_malicious = "b" } }

A defence can have two kinds of settings. With the settings `untold`, it is not told how many clients are malicious.
With the settings `told`, it is told their number. Both kinds can hold the tables `filter`, `aggregator`, `fallback`
and `server` of a spec (the TOML file that describes runs). In `told`, the word "b" stands for the number of
malicious clients, and "m-b" for the number of honest clients. A defence with both `untold` and `told` has two lines
on the leaderboard.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from flanders.checks import InputError, check_number, did_you_mean, resolve_count
from flanders.experiments.experiment import Experiment
from flanders.experiments.filling import COUNTS, as_table
from flanders.experiments.grid import read_toml
from flanders.experiments.spec import resolve
from flanders.leaderboard.protocol import LEADERBOARD_PACKAGE, BoardProtocol, Case
from flanders.results.tree import Table

SECTIONS = ("filter", "aggregator", "fallback", "server")
"""The tables of a spec that a defence may set. All other tables belong to the protocol."""
KEYS = ("name", "paper", "largest_b", "reference", "untold", "told")
"""The keys of a table `[[defence]]`."""
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]{0,39}")
"""The form of a defence's name. It is short and plain, since it is used in tables, in commands and on web pages."""
LONGEST_PAPER = 120
"""The most characters of `paper`, so that it fits in one line of a table."""


@dataclass(frozen=True)
class Entrant:
    """A defence with its settings `told` or `untold`. It is one line of the leaderboard."""

    name: str
    told: bool
    """Whether the defence is told how many clients are malicious."""
    tables: Table = field(hash=False)
    """The tables of the spec that the defence sets."""
    paper: str = ""
    largest_b: int | None = None
    """The largest number of malicious clients that the defence can be told. If more clients are malicious, it is
    told this number."""
    reference: bool = False
    """Whether the defence is on the leaderboard only for comparison. Then it has no rank."""

    @property
    def title(self) -> str:
        """The name of the defence in the table."""
        return title_of(self.name, self.told)

    def experiment(self, protocol: BoardProtocol, dataset: str, case: Case, seed: int) -> Experiment:
        """Return the run of this defence on a dataset, in one case and with one seed."""
        m = int(protocol.federation["num_clients"])
        b = resolve_count(case.fraction, m)
        if self.largest_b is not None:
            b = min(b, self.largest_b)
        known = {"b": b, "m-b": m - b} if self.told else {}
        spec = {**protocol.spec(dataset, case, seed), **_filled(self.tables, known)}
        return resolve(spec, f"defence {self.title}")


def title_of(name: str, told: bool) -> str:
    """Return the name of a defence in the table.

    Examples
    --------
    >>> title_of("krum", True), title_of("krum", False)
    ('krum, told b', 'krum')
    """
    return f"{name}, told b" if told else name


def own_entrants() -> list[Entrant]:
    """Return the defences of this package."""
    text = (files(LEADERBOARD_PACKAGE) / "defences.toml").read_text(encoding="utf-8")
    return parse_entrants(tomllib.loads(text), "defences.toml")


def read_entrants(path: Path) -> list[Entrant]:
    """Return the defences of a file. Raise an error if one of them has the name of a defence of this package."""
    entrants = parse_entrants(read_toml(path), str(path))
    own_names = {entrant.name for entrant in own_entrants()}
    for entrant in entrants:
        if entrant.name in own_names:
            raise InputError(f"{path}: flanders has a defence {entrant.name!r} already. Choose another name.")
        if entrant.reference:
            raise InputError(f"{path}: {entrant.name!r} cannot be a reference. Leave out `reference`.")
    return entrants


def parse_entrants(tree: Table, place: str) -> list[Entrant]:
    """Return the defences that the content of a file describes. Errors name the file as `place`."""
    listed = tree.get("defence")
    if not isinstance(listed, list) or not listed or set(tree) != {"defence"}:
        raise InputError(f"{place} needs one or more tables [[defence]] and nothing else.")
    entrants = [entrant for table in listed for entrant in _entrants(as_table(table, f"{place}: defence"), place)]
    _check_unique([entrant.title for entrant in entrants], place)
    return entrants


def _entrants(table: Table, place: str) -> list[Entrant]:
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"{place}: each defence needs a `name` of up to 40 lower-case letters, digits, dashes, dots and plus "
            f"signs. It begins with a letter or a digit. Got {name!r} instead."
        )
    where = f"{place}: {name}"
    _check_keys(table, KEYS, where)
    paper, reference, largest = table.get("paper", ""), table.get("reference", False), table.get("largest_b")
    if not isinstance(paper, str) or len(paper) > LONGEST_PAPER or not paper.isprintable():
        raise InputError(f"{where}: `paper` must be one line of at most {LONGEST_PAPER} characters.")
    if not isinstance(reference, bool):
        raise InputError(f"{where}: `reference` must be true or false. Got {reference!r} instead.")
    check_number(where, "largest_b", largest, 0, whole=True, optional=True)
    variants = [(key == "told", table[key]) for key in ("untold", "told") if key in table]
    if not variants:
        raise InputError(f'{where} needs `untold`, `told` or both, e.g. untold = {{ filter = "my-filter" }}.')
    entrants = []
    for told, given in variants:
        key = "told" if told else "untold"
        tables = as_table(given, f"{where}: {key}")
        _check_keys(tables, SECTIONS, f"{where}: {key}")
        if told != bool(set(_words(tables)) & set(COUNTS)):
            raise InputError(
                f'{where}: `told` must use "b" or "m-b".'
                if told
                else f'{where}: `untold` may not use "b" or "m-b".'
            )
        entrants.append(Entrant(name, told, tables, paper, largest, reference))
    return entrants


def _check_keys(table: Table, known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise InputError(
                f"{where}: there is no key {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}."
            )


def _check_unique(titles: Sequence[str], place: str) -> None:
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise InputError(f"{place}: two defences have the name {twice[0]!r}. Rename one of them.")


def _words(value: object) -> Iterable[str]:
    """Yield all strings in nested tables and lists."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _words(inner)


def _filled(value: Table, counts: Table) -> Table:
    """Return the tables with the words "b" and "m-b" replaced by the numbers in `counts`."""

    def replaced(part: object) -> object:
        if isinstance(part, dict):
            return _filled(part, counts)
        if isinstance(part, list):
            return [replaced(item) for item in part]
        return counts.get(part, part) if isinstance(part, str) else part

    return {key: replaced(part) for key, part in value.items()}
