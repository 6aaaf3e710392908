"""Labels of runs. A label names the attack and the defence of a run, and how the run differs from other runs.

A run is described by its spec, a tree of tables. A flat spec has the values of a spec by dotted keys such as
`filter.name` (see `flat_spec`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from flanders.results.spec_keys import (
    DATASET,
    FRACTION,
    LABEL_KEYS,
    SEED,
    aggregator_name,
    attack_name,
    client_counts,
    filter_name,
    flat_spec,
    label,
    last_part,
    owners_of,
)
from flanders.results.tree import Table

COUNT_WORDS = {"keep": "m-b", "num_malicious": "b"}
"""Two parameters whose values are numbers of clients. A spec may have a word in place of such a number: `b` stands
for the number of malicious clients in a round, and `m-b` for the number of all other clients in it."""


def varying(flats: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the keys in which runs differ. `flats` has the flat spec of each run.

    A parameter of a filter is compared only between runs with the same filter. So the `keep` of two runs is
    compared if both have the filter `dnc`, but not if one of them has `krum`. The parameters of attacks, and of
    everything else that is chosen by name, are compared in the same way.

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
    """Find the keys in which runs with the same `label` differ. Return the values of these keys for each run."""
    flats = [flat_spec(spec) for spec in specs]
    alike: dict[str, list[Table]] = defaultdict(list)
    for flat in flats:
        alike[repr([flat.get(key) for key in LABEL_KEYS])].append(flat)
    keys = dict.fromkeys(key for group in alike.values() for key in varying(group))
    return [{key: flat.get(key) for key in keys} for flat in flats]


def short_labels(specs: Sequence[Table]) -> list[str]:
    """Return a short label for each run: its attack, its filter, and its values for the keys in which runs differ.

    If two runs would have the same short label, all runs get long labels.

    Examples
    --------
    >>> spec = {"threat": {"attack": {"name": "lie"}, "fraction": 0.2}, "filter": {"name": "guard"},
    ...         "federation": {"seed": 0}}
    >>> short_labels([spec, {**spec, "federation": {"seed": 1}}])
    ['lie 0.2, guard, seed 0', 'lie 0.2, guard, seed 1']
    """
    flats = [flat_spec(spec) for spec in specs]
    keys = varying(flats)
    names = []
    for spec, flat in zip(specs, flats, strict=True):
        attack = attack_name(spec)
        words = [str(flat[DATASET])] if DATASET in keys else []
        words.append(
            f"{attack} {flat[FRACTION]:g}" if FRACTION in flat else "no attack" if attack == "none" else attack
        )
        words.append(filter_name(spec))
        if {"aggregator.name", "aggregator.preaggregators"} & set(keys):
            words.append(aggregator_name(spec))
        others = [key for key in keys if key not in (*LABEL_KEYS, SEED) and key in flat]
        words += [f"{last_part(key)}={flat[key]}" for key in others]
        words += [f"seed {flat[SEED]}"] if SEED in keys else []
        names.append(", ".join(words))
    return names if len(set(names)) == len(names) else labels(specs)


def labels(specs: Sequence[Table]) -> list[str]:
    """Return a long label for each run: its `label`, and what `differences` returns for it."""
    long_labels = []
    for spec, differing in zip(specs, differences(specs), strict=True):
        words = [f"{key}={value}" for key, value in differing.items() if value is not None]
        long_labels.append(", ".join([label(spec), *words]))
    return long_labels


def relative_counts(flats: Sequence[Table]) -> list[Table]:
    """Return flat specs with the words `m-b` and `b` in place of numbers of clients (see `COUNT_WORDS`).

    Let m be the number of clients in a round, and b the number of malicious clients among them. A value of `keep`
    is replaced by `m-b` if it equals m - b in every run that has this value. A value of `num_malicious` is replaced
    by `b` if it equals b in every run that has this value.
    """

    def follows(key: str, flat: Table) -> bool:
        if "federation.num_clients" not in flat:  # a live federation, whose malicious clients are not known
            return False
        m, b = client_counts(flat)
        return bool(flat[key] == {"keep": m - b, "num_malicious": b}[last_part(key)])

    counts = [[key for key in flat if last_part(key) in COUNT_WORDS] for flat in flats]
    fixed = {(k, flat[k]) for flat, keys in zip(flats, counts, strict=True) for k in keys if not follows(k, flat)}
    return [
        {**flat, **{k: COUNT_WORDS[last_part(k)] for k in keys if (k, flat[k]) not in fixed}}
        for flat, keys in zip(flats, counts, strict=True)
    ]
