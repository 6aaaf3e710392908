"""Where each kind of thing that a spec can name is registered; nothing is imported before it is asked for.

Other packages register theirs as entry points, e.g. of the group `flanders.attacks`.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Any

from flanders.registry import Registry
from flanders.types import InputError, did_you_mean

_REGISTRIES = {
    "attacks": ("flanders.attacks", "ATTACKS"),
    "poisons": ("flanders.simulation", "DATA_POISONS"),
    "filters": ("flanders.filters", "FILTERS"),
    "aggregators": ("flanders.aggregators", "AGGREGATORS"),
    "preaggregators": ("flanders.aggregators", "PREAGGREGATORS"),
    "datasets": ("flanders.data", "DATASETS"),
    "partitions": ("flanders.data", "PARTITIONS"),
    "models": ("flanders.models", "MODELS"),
}
KINDS: Sequence[str] = tuple(_REGISTRIES)
NOT_IN_SPECS = {
    "fltrust": "fltrust needs the server's own update of each round, which runs have not; pass it in Python."
}
"""What is registered but cannot be run from a spec, and why."""


def registry(kind: str) -> Registry[Any]:
    """Return the registry of one of `KINDS`."""
    if kind not in _REGISTRIES:
        raise InputError(f"There is no list of {kind!r}.{did_you_mean(kind, KINDS)} Known: {', '.join(KINDS)}.")
    module, name = _REGISTRIES[kind]
    found: Registry[Any] = getattr(need(module), name)
    if not (own := _plugins(kind)):
        return found
    if twice := [name for name in own if name in found]:
        raise InputError(f"{twice[0]!r} is one of flanders' own {kind}. Give the installed one another name.")
    return Registry(found.kind, {**found, **own})


@cache
def _plugins(kind: str) -> dict[str, type[Any]]:
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


def need(module: str) -> Any:
    """Import a module of this package, or say which extra brings what it lacks."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "flanders"):
            raise
        extra = "report" if module.startswith("flanders.report") else "sim"
        raise InputError(
            f"This needs {missing}, which is not installed. Install it with: pip install 'flanders-fl[{extra}]'."
        ) from error
