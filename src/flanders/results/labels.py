"""What tells the runs of a set from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from flanders.results.summary import label
from flanders.results.tree import Table, flatten

TOLD = (
    "data.dataset.name",
    *("attack.name", "attack.fraction", "poison.name", "poison.fraction"),
    *("filter.name", "aggregator.name", "aggregator.preaggregators", "federation.seed", "engine"),
)
"""What every description of a run has in it."""
DEFENCE = ("filter", "aggregator", "fallback")
"""The tables of a spec that say how the server defends itself."""


def section_of(key: str) -> str:
    """Return the table of a spec that a dotted key belongs to."""
    return key.partition(".")[0]


def told(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's values under dotted keys, without those that say nothing: that all clients are selected, too.

    Examples
    --------
    >>> told({"attack": {"name": "lie", "start": 2}, "poison": None, "federation": {"clients": 9, "per_round": 9}})
    {'attack.name': 'lie', 'attack.start': 2, 'federation.clients': 9}
    """
    flat = {key: value for key, value in flatten(spec).items() if value is not None and value != []}
    if flat.get("federation.per_round") == flat.get("federation.clients"):
        flat.pop("federation.per_round", None)
    return flat


def varying(flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ between runs that make the same choice of what they belong to.

    Examples
    --------
    >>> varying([{"filter.name": "krum"}, {"filter.name": "dnc", "filter.keep": 2}])
    ['filter.name']
    >>> varying([{"filter.name": "dnc", "filter.keep": 3}, {"filter.name": "dnc", "filter.keep": 2}])
    ['filter.keep']
    """
    seen: dict[tuple[str, Any], set[str]] = defaultdict(set)
    keys = dict.fromkeys(key for flat in flats for key in flat)
    for flat in flats:
        for key in keys:
            owner = f"{key.rpartition('.')[0]}.name"
            if key == owner or owner not in keys or owner in flat:
                seen[key, flat.get(owner) if key != owner else None].add(repr(flat.get(key)))
    differ = {key for (key, _), values in seen.items() if len(values) > 1}
    return [key for key in keys if key in differ]


def differences(specs: Sequence[Table]) -> list[dict[str, Any]]:
    """Return for each run the values that tell it from those of which all else that is told is the same."""
    flats = [told(spec) for spec in specs]
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for flat in flats:
        alike[repr([flat.get(key) for key in TOLD])].append(flat)
    keys = dict.fromkeys(key for group in alike.values() for key in varying(group))
    return [{key: flat.get(key) for key in keys} for flat in flats]


def labels(specs: Sequence[Table]) -> list[str]:
    """Return each run in a few words, among them whatever tells it from the others."""
    found = []
    for spec, apart in zip(specs, differences(specs), strict=True):
        words = [f"{key}={value}" for key, value in apart.items() if value is not None]
        found.append(", ".join([label(spec), *words]))
    return found
