"""Everything that a spec can choose by name: attacks, filters, datasets and so on.

These are the classes of this package, and classes that other installed packages add. A spec is a TOML file that
describes experiments. Another package adds an attack, for example, as an entry point of the group
`flanders.attacks`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from flanders.catalog import AGGREGATORS, ATTACKS, FILTERS, LOOKS, PREAGGREGATORS
from flanders.checks import InputError, did_you_mean
from flanders.data import DATASETS, PARTITIONS
from flanders.extras import needing
from flanders.plain_text import printable
from flanders.registry import Registry

AnyRegistry = Registry[Any]
LONGEST_REASON = 200
"""The most characters that the log shows of an error in another package. Such errors can be very long."""
log = logging.getLogger("flanders")


def _data_poisons() -> AnyRegistry:
    with needing("sim"):
        from flanders.simulation.poisoning import DATA_POISONS
    return DATA_POISONS


def _models() -> AnyRegistry:
    with needing("sim"):
        from flanders.models import MODELS
    return MODELS


_REGISTRIES: dict[str, Callable[[], AnyRegistry]] = {
    "attacks": lambda: ATTACKS,
    "data_poisons": _data_poisons,
    "filters": lambda: FILTERS,
    "looks": lambda: LOOKS,
    "aggregators": lambda: AGGREGATORS,
    "preaggregators": lambda: PREAGGREGATORS,
    "datasets": lambda: DATASETS,
    "partitions": lambda: PARTITIONS,
    "models": _models,
}
KINDS = tuple(_REGISTRIES)
"""The kinds of things that a spec can choose by name."""


def registry(kind: str) -> AnyRegistry:
    """Return all classes of a kind by name, also those of other packages. `kind` is one of `KINDS`."""
    if kind not in _REGISTRIES:
        raise InputError(f"There is no list of {kind!r}.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    own = _REGISTRIES[kind]()
    others, broken = installed(kind)
    for name in others.keys() & own.keys():
        broken = {**broken, name: f"{name!r} is already one of flanders' own {kind}"}
    return own.joined({name: entry for name, entry in others.items() if name not in own}, broken)


@cache
def installed(kind: str) -> tuple[dict[str, type[Any]], dict[str, str]]:
    """Return the classes of a kind that other packages have registered, as two tables.

    A package registers a class as an entry point of the group `flanders.<kind>`. The first table has the usable
    classes by name. The second table has the names of the other classes, and says why they cannot be used. These
    classes are skipped, so that a mistake in one package does not stop commands that do not need this package.
    """
    usable, broken = {}, {}
    for entry in metadata.entry_points(group=f"flanders.{kind}"):
        try:
            loaded = entry.load()
            if not isinstance(loaded, type) or not dataclasses.is_dataclass(loaded):
                raise TypeError("it must be a dataclass")
            Registry(kind, {entry.name: loaded}).describe(entry.name)
            usable[entry.name] = loaded
        except (Exception, SystemExit) as error:  # the code of another package runs here, and may raise anything
            why = printable(f"{type(error).__name__}: {error}", LONGEST_REASON)
            broken[entry.name] = f"{entry.name!r}, installed as {entry.value}, cannot be loaded ({why})"
            log.error("skipped: %s", broken[entry.name])
    return usable, broken
