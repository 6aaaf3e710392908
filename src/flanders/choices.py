"""Everything that a spec can choose by name: the package's own entries, and those of other installed packages.

Other packages add entries as entry points, e.g. of the group `flanders.attacks`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

from flanders.catalog import AGGREGATORS, ATTACKS, FILTERS, LOOKS, PREAGGREGATORS
from flanders.checks import InputError, did_you_mean
from flanders.data import DATASETS, PARTITIONS
from flanders.extras import needing
from flanders.registry import Registry

AnyRegistry = Registry[Any]


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
"""The kinds of things that can be chosen by name."""


def registry(kind: str) -> AnyRegistry:
    """Return the entries of one of `KINDS`."""
    if kind not in _REGISTRIES:
        raise InputError(f"There is no list of {kind!r}.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    found = _REGISTRIES[kind]()
    if not (theirs := installed(kind)):
        return found
    if twice := [name for name in theirs if name in found]:
        raise InputError(
            f"{twice[0]!r} is already one of flanders' own {kind}. Rename the entry of the other package."
        )
    return found.joined(theirs)


@cache
def installed(kind: str) -> dict[str, type[Any]]:
    """Return what other packages have registered as entry points of the group `flanders.<kind>`."""
    found = {}
    for entry in metadata.entry_points(group=f"flanders.{kind}"):
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(f"{entry.name!r}, installed as {entry.value}, cannot be loaded: {error}.") from error
        if not dataclasses.is_dataclass(found[entry.name]):
            raise InputError(f"{entry.name!r}, installed as {entry.value}, must be a dataclass.")
    return found
