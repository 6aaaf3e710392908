"""Finds out which values a type annotation allows.

A value is plain (e.g. a number), a list, a table, or an entry that is chosen by its name, e.g. an attack. Two
modules use this one: `filling` checks specs, and `json_schema` describes specs.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from flanders.aggregators import Aggregator, PreAggregator
from flanders.attacks import Attack
from flanders.choices import AnyRegistry, registry
from flanders.data import Loader, Partition
from flanders.filters import Filter, Look
from flanders.models import ModelSpec
from flanders.registry import Registry
from flanders.simulation.poisoning import DataPoison

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Hint = Any
"""An annotation: a type, a union of types, or a form such as `tuple[int, ...]`."""
PLAIN = (bool, int, float, str, Path)
"""The types of plain values. Other values are lists and tables."""
BY_NAME: dict[type[object], str] = {
    Attack: "attacks",
    DataPoison: "data_poisons",
    Filter: "filters",
    Look: "looks",
    Aggregator: "aggregators",
    PreAggregator: "preaggregators",
    Loader: "datasets",
    Partition: "partitions",
    ModelSpec: "models",
}
"""The base classes whose subclasses are chosen by name, and the names of the registries with these subclasses."""


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The values that an annotation allows."""

    none: bool = False
    """Whether None is allowed."""
    plain: frozenset[type[object]] = frozenset()
    """The types of plain values that are allowed."""
    words: tuple[object, ...] = ()
    """The plain values that are allowed. Empty if all values of the `plain` types are allowed."""
    items: Hint = None
    """The annotation of the items of a list. None if no list is allowed."""
    values: Hint = None
    """The annotation of the values of a table with any keys. None if no such table is allowed."""
    record: type[DataclassInstance] | None = None
    """The dataclass that may be written as a table of its fields. None if no dataclass or several are allowed."""
    entries: AnyRegistry | None = None
    """The names that may be chosen, and the class of each name. None if nothing can be chosen by name."""
    kind: str = ""
    """The name of `entries` in `flanders.choices.KINDS`. Empty if `entries` is not one of these registries."""
    anything: bool = False
    """Whether any value is allowed."""

    @property
    def number(self) -> bool:
        """Whether a number is allowed."""
        return bool(self.plain & {int, float})


def allowed_by(hint: Hint) -> Allowed:
    """Return the values that an annotation allows."""
    members = _members(hint)
    records = [m for m in members if _is_record(m)]
    kinds = [kind for m in members if (kind := _kind(m)) is not None]
    lists = [m for m in members if _origin(m) in (tuple, list, Sequence)]
    tables = [m for m in members if _origin(m) in (dict, Mapping)]
    literals = tuple(word for m in members if _origin(m) is typing.Literal for word in typing.get_args(m))
    entries = registry(kinds[0]) if kinds else _union(records) if len(records) > 1 else None
    return Allowed(
        none=type(None) in members,
        plain=frozenset(m for m in members if m in PLAIN) | {type(word) for word in literals},
        words=literals,
        items=(typing.get_args(lists[0]) or (Any,))[0] if lists else None,
        values=typing.get_args(tables[0])[1] if tables else None,
        record=records[0] if len(records) == 1 else None,
        entries=entries,
        kind=kinds[0] if kinds else "",
        anything=Any in members,
    )


def hints_of(cls: type[object]) -> dict[str, Hint]:
    """Return the annotation of each field that a dataclass can be built with, by name."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields_of(cls)}


def fields_of(cls: type[object]) -> list[dataclasses.Field[Any]]:
    """Return the fields that a dataclass can be built with."""
    assert dataclasses.is_dataclass(cls), f"{cls.__name__} is not a dataclass"
    return [field for field in dataclasses.fields(cls) if field.init]


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _members(hint: Hint) -> list[Hint]:
    """Return the members of a union, or the annotation itself."""
    if _origin(hint) in (typing.Union, types.UnionType):
        return [inner for member in typing.get_args(hint) for inner in _members(member)]
    return [hint]


def _origin(hint: Hint) -> object:
    """Return an annotation without its parameters, e.g. `tuple` for `tuple[int, ...]`."""
    return typing.get_origin(hint) or hint


def _is_record(member: Hint) -> TypeGuard[type[DataclassInstance]]:
    """Whether an annotation is a dataclass that is written as a table of its fields."""
    return isinstance(member, type) and dataclasses.is_dataclass(member) and _kind(member) is None


def _kind(member: Hint) -> str | None:
    """Return the name of the registry of a base class (see `BY_NAME`). None for any other annotation."""
    base = _origin(member)
    return BY_NAME.get(base) if isinstance(base, type) else None


def _union(records: Sequence[type[DataclassInstance]]) -> AnyRegistry:
    """Return a table of names and dataclasses. The names are the class names, in lower case and with dashes."""
    named = {re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower(): cls for cls in records}
    return Registry("form", dict(named))
