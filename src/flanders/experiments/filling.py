"""Turns a table of a spec into a dataclass, and a dataclass into a table.

A spec is the TOML file that describes runs. Each value in the table is checked against the type annotation of its
field.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from flanders.aggregators import Aggregator, PreAggregator
from flanders.aggregators.aggregator import Chain
from flanders.checks import InputError, did_you_mean
from flanders.experiments.annotations import Allowed, Hint, allowed_by, fields_of, hints_of, is_required
from flanders.registry import Registry
from flanders.results.tree import Table

T = TypeVar("T")
NONE = "none"
"""The word that stands for None in a spec, since TOML has no None."""
PREAGGREGATORS = "preaggregators"
"""The key, in the table of an aggregator, for the pre-aggregators that prepare its updates."""
COUNTS = ("b", "m-b")
"""Words that stand for numbers: "b" for the number of malicious clients in a round, and "m-b" for the number of all
other clients in the round."""
COUNT_OR_FRACTION = frozenset({"keep", "num_malicious", "trim", "clients_per_round", "agreement"})
"""Parameters that are a number of clients or a fraction of them: 1 is one client, and 1.0 is all clients."""
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a string", Path: "a path"}


@dataclass(frozen=True)
class Filler:
    """Builds dataclasses from tables of a spec. Every error names the key that is wrong."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """The words in `COUNTS`, and the number that each of them stands for. Empty as long as the numbers are not
    known."""

    def fill(self, cls: type[T], table: Mapping[str, object], where: str) -> T:
        """Build a dataclass from a table of its fields. `where` is the name of the table in error messages."""
        fields, hints = {f.name: f for f in fields_of(cls)}, hints_of(cls)
        for key in table:
            if key not in fields:
                known = f"Known: {', '.join(fields)}." if fields else "There are no parameters."
                guess = did_you_mean(key, fields)
                raise InputError(f"{below(where, key)}: there is no such parameter.{guess} {known}")
        missing = [name for name, field in fields.items() if name not in table and is_required(field)]
        if missing:
            raise InputError(f"{place(where)}: a value is needed for {', '.join(missing)}.")
        values = {key: self.convert(value, hints[key], below(where, key)) for key, value in table.items()}
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{place(where)}: {error}") from error

    def convert(self, value: object, hint: Hint, where: str) -> Any:
        """Convert a value of a spec to the type of its field. `hint` is the type annotation of the field."""
        allowed = allowed_by(hint)
        if allowed.anything or (is_dataclass(value) and not isinstance(value, type)):
            return value
        if allowed.none and (value is None or (value == NONE and str not in allowed.plain)):
            return None
        if allowed.entries is not None and (isinstance(value, str | dict) or not allowed.plain):
            return self._choose(value, allowed, where)
        if allowed.record is not None and isinstance(value, dict):
            return self.fill(allowed.record, value, where)
        if allowed.values is not None and isinstance(value, dict):
            return {key: self.convert(v, allowed.values, below(where, key)) for key, v in value.items()}
        if allowed.items is not None and isinstance(value, list | tuple):
            return tuple(self.convert(v, allowed.items, f"{where}[{i}]") for i, v in enumerate(value))
        return self._plain_value(value, allowed, where)

    def _plain_value(self, value: object, allowed: Allowed, where: str) -> object:
        """Return a number, a text, a path, or true or false. Raise an error if the value is not allowed."""
        if isinstance(value, str) and value in self.counts and allowed.number:
            return self._count(value, where)
        if isinstance(value, str) and str not in allowed.plain and Path in allowed.plain:
            return Path(value)
        if isinstance(value, float) and math.isnan(value):
            raise InputError(f"{where} is nan, which is not a number. Give a value.")
        if type(value) is int and int not in allowed.plain and float in allowed.plain:
            if abs(value) > sys.float_info.max:
                raise InputError(
                    f"{where} is too large: numbers go up to {sys.float_info.max:.2g}. Give a smaller one."
                )
            return value if where.rpartition(".")[2] in COUNT_OR_FRACTION else float(value)
        if type(value) in allowed.plain and (not allowed.words or value in allowed.words):
            return value
        raise InputError(f"{where} must be {self._wanted(allowed)}. Got {value!r} instead.{_tip(value, allowed)}")

    def _count(self, word: str, where: str) -> int:
        count = self.counts[word]
        if word == "m-b" and count == 0:
            raise InputError(f"{where}: m-b is 0: all {self.counts['b']} clients of the round are malicious.")
        return count

    def _wanted(self, allowed: Allowed) -> str:
        """Return a description of the allowed values for an error message."""
        words = list(map(repr, allowed.words)) or [text for kind, text in _WORDS.items() if kind in allowed.plain]
        if allowed.items is not None:
            words.append("a list")
        if allowed.record is not None or allowed.values is not None:
            words.append("a table of keys and values")
        if allowed.none:
            words.append(f'"{NONE}"')
        also = f", or one of {', '.join(map(repr, self.counts))}" if self.counts and allowed.number else ""
        return f"{' or '.join(words)}{also}"

    def _choose(self, value: object, allowed: Allowed, where: str) -> object:
        """Build an entry of a registry, e.g. an attack, from its name or a table of its name and parameters."""
        entries = allowed.entries
        assert entries is not None
        table = one_table(value, where)
        if allowed.none and table.get("name") == NONE:
            if len(table) > 1:
                rest = ", ".join(key for key in table if key != "name")
                raise InputError(f"{where}: {NONE!r} has no parameters. Got {rest}.")
            return None
        if allowed.kind == "aggregators":
            return self._aggregator(table, entries, where)
        return self._entry(table, entries, where)

    def _entry(self, table: Mapping[str, object], entries: Registry[T], where: str) -> T:
        name = table.get("name")
        if not isinstance(name, str):
            known = f"Known: {', '.join(entries)}. Got {name!r} instead."
            raise InputError(f"{where}.name must be the name of one {entries.kind}. {known}")
        if name == NONE and name not in entries:
            raise InputError(f"{where}.name may not be {NONE!r}. Leave the table out for the default.")
        try:
            cls = entries[name]
        except InputError as error:
            raise InputError(f"{where}.name: {error}") from error
        return self.fill(cls, {key: v for key, v in table.items() if key != "name"}, where)

    def _aggregator(self, table: Table, entries: Registry[Aggregator], where: str) -> Aggregator:
        """Build an aggregator, with its pre-aggregators if there are any."""
        given = table.pop(PREAGGREGATORS, NONE)
        links = [] if given == NONE else given if isinstance(given, list) else [given]
        if links and table.get("name") == NONE:
            raise InputError(f"{where}: {PREAGGREGATORS} need an aggregator after them. Give its name.")
        aggregator: Aggregator = self._entry(table, entries, where)
        for link in reversed(links):
            before: PreAggregator = self.convert(link, PreAggregator, f"{where}.{PREAGGREGATORS}")
            aggregator = before | aggregator
        return aggregator


def one_table(value: object, where: str) -> Table:
    """Return one table with the name and the parameters of an entry, e.g. of an attack.

    `value` may be a name, or a table with the key `name`. The value of `name` may again be a table with a name and
    parameters.
    """
    table = {"name": value} if isinstance(value, str) else as_table(value, where)
    inner = table.get("name")
    if not isinstance(inner, dict):
        return dict(table)
    twice = [key for key in inner if key in table and key != "name"]
    if twice:
        raise InputError(f"{where}.{twice[0]} is given twice: beside `name` and inside it.")
    return {**table, **one_table(inner, where)}


def as_table(value: object, where: str) -> Table:
    """Return `value` if it is a table. Otherwise raise an error, in which `where` is the name of the value."""
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a table of keys and values. Got {value!r} instead.")
    return value


def tree_of(instance: object, where: str = "") -> Table:
    """Return all fields of a dataclass as a table of JSON values.

    `Filler.fill` turns the table into the dataclass again. `where` is the name of the table in error messages.
    """
    hints = hints_of(type(instance))
    return {key: written(getattr(instance, key), hint, below(where, key)) for key, hint in hints.items()}


def written(value: object, hint: Hint, where: str) -> object:
    """Return the value of a field as a JSON value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    allowed = allowed_by(hint)
    if isinstance(value, Mapping):
        return {str(key): written(v, allowed.values, where) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [written(v, allowed.items, where) for v in value]
    if isinstance(value, Aggregator):
        return _written_aggregator(value, allowed, where)
    if allowed.entries is not None:
        return {"name": allowed.entries.name_of(value), **tree_of(value, where)}
    if allowed.record is not None and isinstance(value, allowed.record):
        return tree_of(value, where)
    raise InputError(f"{where}: {value!r} cannot be written in a spec.")


def _written_aggregator(value: Aggregator, allowed: Allowed, where: str) -> Table:
    """Return the table of an aggregator and its pre-aggregators."""
    links = []
    while isinstance(value, Chain):
        links.append(written(value.first, PreAggregator, f"{where}.{PREAGGREGATORS}"))
        value = value.then
    assert allowed.entries is not None
    return {"name": allowed.entries.name_of(value), **tree_of(value, where), PREAGGREGATORS: links}


def below(where: str, key: str) -> str:
    """Return the dotted key of a value in the table `where`, for error messages. At the top level of a spec,
    `where` is empty or ends with a colon and a space, and no dot is added.

    Examples
    --------
    >>> below("filter", "keep"), below("spec: ", "filter"), below("", "filter")
    ('filter.keep', 'spec: filter', 'filter')
    """
    return f"{where}{key}" if where == "" or where.endswith(": ") else f"{where}.{key}"


def place(where: str) -> str:
    """Return `where` without the colon and the space that it may end with; see `below`.

    Error messages add them themselves.
    """
    return where.removesuffix(": ")


def _tip(value: object, allowed: Allowed) -> str:
    if isinstance(value, dict):
        return " It cannot be a table."
    if isinstance(value, list) and allowed.items is None:
        return (
            " A list gives a run for each of its values. A list inside a list is a single value: to compare its "
            "values, remove the inner brackets."
        )
    return ""
