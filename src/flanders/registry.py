"""The class `Registry`: a table of classes by name, e.g. of all aggregators.

A command or a spec (a TOML file that describes experiments) names a class. The registry makes an object of this
class.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from flanders.checks import InputError, did_you_mean

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Entry:
    """The description of an entry of a registry."""

    name: str
    summary: str
    """The first paragraph of the docstring of the class."""
    parameters: dict[str, object]
    """The default value of each parameter. A parameter without a default has the value `REQUIRED`."""
    family: str = ""
    """The heading under which the entry is listed."""


REQUIRED = "required"
"""The value in `Entry.parameters` of a parameter that has no default."""
OTHERS = "From other packages"
"""The heading for entries that other packages have registered."""


class UnknownNameError(InputError, KeyError):
    """A registry has no entry with this name. It is a KeyError, since a registry is a mapping."""

    __str__ = Exception.__str__  # the `__str__` of a KeyError puts the message into quotes


class Registry(Generic[T], Mapping[str, type[T]]):
    """A read-only table of frozen dataclasses by name.

    `kind` says in messages what the entries are, e.g. "aggregator". `headings` says for each entry, by its name,
    under which heading it is listed. The entries under one heading are a family. `broken` has the entries of other
    packages that cannot be used: the keys are their names, and the values say why.

    Examples
    --------
    >>> from flanders import AGGREGATORS
    >>> AGGREGATORS.make("trimmed-mean", trim=1)
    TrimmedMean(trim=1, weighted=False)
    >>> AGGREGATORS.make("trimed-mean")
    Traceback (most recent call last):
        ...
    flanders.registry.UnknownNameError: There is no aggregator named 'trimed-mean'. Did you mean 'trimmed-mean'? ...
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, type[T]],
        headings: Mapping[str, str] | None = None,
        broken: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._headings = {} if headings is None else dict(headings)
        self.broken = {} if broken is None else dict(broken)

    @classmethod
    def grouped(cls, kind: str, families: Mapping[str, Mapping[str, type[T]]]) -> Registry[T]:
        """Return a registry. `families` has tables of entries by name, and the heading of each table is its key."""
        entries = {name: entry for family in families.values() for name, entry in family.items()}
        return cls(kind, entries, {name: heading for heading, family in families.items() for name in family})

    def joined(self, more: Mapping[str, type[T]], broken: Mapping[str, str] | None = None) -> Registry[T]:
        """Return this registry with the entries `more` of other packages added. `Registry` explains `broken`."""
        if not more and not broken:
            return self
        headings = self._headings and {**self._headings, **dict.fromkeys(more, OTHERS)}
        return Registry(self.kind, {**self._entries, **more}, headings, broken)

    def family_of(self, name: str) -> str:
        """Return the heading under which an entry is listed. It is empty if the registry has no families."""
        return self._headings.get(name, "")

    def __getitem__(self, name: str) -> type[T]:
        if isinstance(name, str) and name not in self and name in self.broken:
            raise UnknownNameError(f"There is no {self.kind} named {name!r}: {self.broken[name]}.")
        if name not in self:
            raise UnknownNameError(
                f"There is no {self.kind} named {name!r}.{did_you_mean(str(name), self._entries)} "
                f"Known: {', '.join(self._entries)}."
            )
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def make(self, name: str, **parameters: Any) -> T:
        """Return an object of the class that is registered as `name`. An unknown parameter is an error."""
        entry = self[name]
        known = self.describe(name).parameters
        for given in parameters:
            if given not in known:
                has = f"It has: {', '.join(known)}." if known else "It has none."
                raise InputError(f"{name!r} has no parameter {given!r}.{did_you_mean(given, known)} {has}")
        missing = [p for p, default in known.items() if default is REQUIRED and p not in parameters]
        if missing:
            raise InputError(f"{name!r} needs a value for {', '.join(missing)}.")
        return entry(**parameters)

    def describe(self, name: str) -> Entry:
        """Return the name, the first paragraph of the docstring and the parameters of an entry."""
        entry = self[name]

        parameters: dict[str, object] = {}
        for field in dataclasses.fields(entry) if dataclasses.is_dataclass(entry) else ():
            if field.default is not dataclasses.MISSING:
                parameters[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                parameters[field.name] = field.default_factory()
            else:
                parameters[field.name] = REQUIRED
        return Entry(name, first_paragraph(entry), parameters, self.family_of(name))

    def name_of(self, entry: object) -> str:
        """Return the name under which the class of the object `entry` is registered."""
        for name, kind in self._entries.items():
            if type(entry) is kind:
                return name
        raise InputError(f"{type(entry).__name__} is not a registered {self.kind}.")


def first_paragraph(cls: type[object]) -> str:
    """Return the first paragraph of the docstring of a class, in one line."""
    return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
