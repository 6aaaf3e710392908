"""The tables and figures of the FLANDERS paper: the cells of each table, and the published values.

A cell is one number of a table.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from itertools import product

from flanders.checks import InputError, did_you_mean
from flanders.results.tree import Table

PACKAGE = "flanders.paper"
VARIANTS = ("reference", "textbook")
"""The variants of the experiments: with the settings of the code that was published with the paper ("reference"),
or with the settings that the text of the paper describes ("textbook")."""
KEYS = ("dataset", "attack", "malicious_ratio", "aggregator", "filter", "metric")
"""The keys that identify a cell within a table. Files of published values have these columns, in this order."""
UNDEFINED = "NA"
"""The published value of a cell if the paper says that the aggregator cannot be applied."""
TABLES = (
    "tab:pr-20",
    "tab:pr-80",
    "tab:increment-fld",
    "tab:increment-fld-80",
    "tab:increment-20",
    "tab:increment",
    "tab:increment-0",
    "tab:robustness-1",
    "tab:nonomn-adaptive",
    "tab:omn-adaptive",
    "tab:random-client-selection",
    "fig:accuracy-over-time",
    "fig:tradeoff",
    "quirks",
    "tab:pr-60",
    "tab:increment-fld-60",
    "tab:increment-60",
)
"""The labels of all tables and figures that can be reproduced, the most informative first. The table "quirks" is
not in the paper. It shows the effect of each difference between the published code and the text."""


@dataclass(frozen=True)
class Cell:
    """One number of a table. The fields have the values that the paper uses, e.g. its names of attacks.

    In the metric `accuracy@fraction=0.2`, the part after `@` is the share of clients that the server selects in
    each round.
    """

    table: str
    dataset: str
    attack: str
    malicious_ratio: str
    aggregator: str
    filter: str
    metric: str
    changes: Table = field(default_factory=dict, compare=False, repr=False)
    """The changes that the table makes to the settings of the variant, as tables of a spec."""

    @property
    def key(self) -> tuple[str, ...]:
        """The values of `KEYS`, which identify the cell within its table."""
        return tuple(getattr(self, name) for name in KEYS)

    @property
    def measure(self) -> str:
        """The metric without the part after `@`."""
        return self.metric.partition("@")[0]

    @property
    def is_undefined(self) -> bool:
        """Whether the paper says, in any table, that the aggregator cannot be applied in this setting."""
        return self.key[:-1] in undefined()


@dataclass(frozen=True)
class TableSpec:
    """A table or figure of the paper."""

    label: str
    title: str
    columns: str
    """The key, one of `KEYS`, whose values are the columns of the table."""
    variants: tuple[str, ...]
    """The variants in which the table can be reproduced."""
    cells: tuple[Cell, ...]

    @property
    def stem(self) -> str:
        """The label without its prefix, e.g. without "tab:". The names of the table's files contain the stem."""
        return self.label.rpartition(":")[2]


def table_names(asked: str) -> list[str]:
    """Return a list of labels from a string: `all`, or labels separated by commas. Prefixes may be left out.

    Examples
    --------
    >>> table_names("pr-20,fig:tradeoff")
    ['tab:pr-20', 'fig:tradeoff']
    """
    if asked == "all":
        return list(TABLES)
    known = {name: name for name in TABLES} | {name.rpartition(":")[2]: name for name in TABLES}
    labels = []
    for name in asked.split(","):
        if name not in known:
            raise InputError(
                f"The paper has no table or figure {name!r} that can be reproduced.{did_you_mean(name, known)} "
                f"Known: all, {', '.join(TABLES)}."
            )
        labels.append(known[name])
    return list(dict.fromkeys(labels))


def read_tables(names: Sequence[str]) -> list[TableSpec]:
    """Return the tables with the given labels."""
    return [_read(name) for name in names]


@cache
def published() -> dict[tuple[str, tuple[str, ...]], str]:
    """Return the paper's values by table and cell, as they are printed. Some of them are `UNDEFINED`."""
    return {(row["table"], _key(row)): row["value"] for row in _rows("tables.csv")}


@cache
def undefined() -> frozenset[tuple[str, ...]]:
    """Return the settings in which the aggregator cannot be applied. A setting is a cell without its metric."""
    return frozenset(key[:-1] for (_, key), value in published().items() if value == UNDEFINED)


@cache
def rerun() -> dict[tuple[str, ...], str]:
    """Return the values of the authors' later re-run of their code, by cell."""
    return {_key(row): row["value"] for row in _rows("rerun.csv")}


def spec_text(name: str) -> str:
    """Return the text of a TOML file of this package."""
    return resources.files(PACKAGE).joinpath("specs", f"{name}.toml").read_text(encoding="utf-8")


def _read(label: str) -> TableSpec:
    spec = tomllib.loads(spec_text(label.rpartition(":")[2]))
    variants = tuple(spec.get("variants", VARIANTS))
    return TableSpec(label, spec["title"], spec["columns"], variants, tuple(_cells(label, spec["part"])))


def _cells(label: str, parts: Sequence[Table]) -> Iterator[Cell]:
    axes = ("datasets", "attacks", "ratios", "aggregators", "filters", "metrics")
    for part in parts:
        for dataset, attack, ratio, aggregator, filter_, metric in product(*(part[axis] for axis in axes)):
            yield Cell(label, dataset, attack, f"{ratio:g}", aggregator, filter_, metric, part.get("spec", {}))


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in KEYS)


def _rows(name: str) -> list[dict[str, str]]:
    with resources.files(PACKAGE).joinpath("published", name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))
