"""Labels of runs. A label says in a few words what a run is, and how it differs from the other runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flanders.results.spec_keys import LABEL_KEYS, client_counts, flat_spec, label, last_part, owners_of
from flanders.results.tree import Table

COUNT_WORDS = {"keep": "m-b", "num_malicious": "b"}
"""Parameters that are usually chosen from the number of malicious clients, and how a spec writes that."""


def varying(flats: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the keys in which runs differ.

    A parameter is compared only between runs that chose the same thing. The `keep` of two filters is compared if
    both are `dnc`, but not if one of them is `krum`.

    Examples
    --------
    >>> varying([{"filter.name": "krum"}, {"filter.name": "dnc", "filter.keep": 2}])
    ['filter.name']
    >>> varying([{"filter.name": "dnc", "filter.keep": 3}, {"filter.name": "dnc", "filter.keep": 2}])
    ['filter.keep']
    """
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    keys = dict.fromkeys(key for flat in flats for key in flat)
    owners = {key: [owner for owner in owners_of(key) if owner in keys] for key in keys}
    for flat in flats:
        for key in keys:
            if not owners[key] or any(owner in flat for owner in owners[key]):
                choice = repr([flat.get(owner) for owner in owners[key]])
                seen[key, choice].add(repr(flat.get(key)))
    differ = {key for (key, _), values in seen.items() if len(values) > 1}
    return [key for key in keys if key in differ]


def differences(specs: Sequence[Table]) -> list[Table]:
    """Return, for each run, its values of the keys in which runs with the same label differ."""
    flats = [flat_spec(spec) for spec in specs]
    alike: dict[str, list[Table]] = defaultdict(list)
    for flat in flats:
        alike[repr([flat.get(key) for key in LABEL_KEYS])].append(flat)
    keys = dict.fromkeys(key for group in alike.values() for key in varying(group))
    return [{key: flat.get(key) for key in keys} for flat in flats]


def labels(specs: Sequence[Table]) -> list[str]:
    """Return each run in a few words, with the values in which it differs from runs with the same label."""
    found = []
    for spec, apart in zip(specs, differences(specs), strict=True):
        words = [f"{key}={value}" for key, value in apart.items() if value is not None]
        found.append(", ".join([label(spec), *words]))
    return found


def relative_counts(flats: Sequence[Table]) -> list[Table]:
    """Write `m-b` and `b` for the parameters that follow the number of malicious clients in all runs."""

    def follows(key: str, flat: Table) -> bool:
        if "federation.num_clients" not in flat:  # a live federation, which nobody knows the attackers of
            return False
        m, b = client_counts(flat)
        return bool(flat[key] == {"keep": m - b, "num_malicious": b}[last_part(key)])

    counts = [[key for key in flat if last_part(key) in COUNT_WORDS] for flat in flats]
    fixed = {(k, flat[k]) for flat, keys in zip(flats, counts, strict=True) for k in keys if not follows(k, flat)}
    return [
        {**flat, **{k: COUNT_WORDS[last_part(k)] for k in keys if (k, flat[k]) not in fixed}}
        for flat, keys in zip(flats, counts, strict=True)
    ]
