"""What a run is: a TOML spec, its grid, and the one canonical form by which a run is known.

A spec has these tables, all optional. Whatever is chosen by name (`model`, `attack`, `poison`, `filter`,
`aggregator`, `fallback`, and `dataset` and `partition` in `data`) may be the name alone, or a table of the
name and its parameters. A list is an axis of the grid (see `flanders.experiments.grid`)::

    [data]
    dataset = "digits"
    partition = "dirichlet"
    alpha = [0.5, 10.0]                     # goes to whichever of the two has the parameter
    [model]
    name = "mlp2"
    [training]
    learning_rate = 0.01
    [federation]
    clients = 100
    per_round = 1.0                         # a fraction, or a number of clients
    rounds = 50
    seed = [0, 1, 2]
    [attack]
    name = ["none", "lie", { name = "gauss", sigma = 5 }]
    fraction = [0.2, 0.8]
    start = 2
    [filter]
    name = ["keep-all", { name = "flanders", keep = "m-b" }]
    [aggregator]
    name = "multi-krum"
    num_malicious = "b"
    preaggregators = "nnm"                  # in front of the rule; a chain of them is [["bucketing", "nnm"]]
    informed = false                        # true: the rule is told how many malicious clients the filter kept
    [fallback]
    name = "median"
    [run]                                   # how, not what: no part of a run's id, and no axis
    device = "auto"

`"b"` and `"m-b"` are numbers of clients of the round: `b = ceil(fraction * per_round)`, none without an
attack. `"none"` stands for None where a parameter may be None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flanders.catalog import NOT_IN_SPECS, need, registry
from flanders.checks import InputError, did_you_mean, resolve_count
from flanders.experiments.grid import blamed, expand, override, parse_override, read_toml
from flanders.experiments.sections import Federation, Malice
from flanders.experiments.values import convert, fields_of, fill
from flanders.results.run import Options, RunSpec
from flanders.results.tree import Table

SECTIONS = (
    "data",
    "model",
    "training",
    "federation",
    "attack",
    "poison",
    "filter",
    "aggregator",
    "fallback",
    "run",
)
CHAIN = "preaggregators"
INFORMED = "informed"
NONE = "none"


def read_specs(paths: Iterable[Path], overrides: Sequence[str] = ()) -> list[RunSpec]:
    """Read spec files and return their runs, each once, in the order of the files."""
    runs: dict[str, RunSpec] = {}
    for path in paths:
        for run in parse_spec(read_toml(Path(path)), overrides, str(path)):
            runs.setdefault(run.id, run)
    return list(runs.values())


def parse_spec(tree: Table, overrides: Sequence[str] = (), place: str = "spec") -> list[RunSpec]:
    """Return the runs that a spec describes, each once, in the order of its grid."""
    for text in overrides:
        tree = override(tree, *parse_override(text))
    try:
        return _runs(tree, place)
    except InputError as error:
        raise blamed(error, place, overrides) from error


def _runs(tree: Table, place: str) -> list[RunSpec]:
    for section in tree:
        if section not in SECTIONS:
            guess = did_you_mean(section, SECTIONS)
            raise InputError(f"{place}: there is no table {section!r}.{guess} Known: {', '.join(SECTIONS)}.")
    for key, value in _table(tree.get("run", {}), f"{place}: run").items():
        if isinstance(value, list):
            raise InputError(f"{place}: run.{key} cannot be an axis: it does not change what a run decides.")
    runs: dict[str, RunSpec] = {}
    for point in expand(tree, place):
        try:
            run = resolve(point, place)
        except InputError as error:
            raise InputError(f"{error}{_axis_tip(tree, str(error))}") from error
        runs.setdefault(run.id, run)
    return list(runs.values())


def resolve(point: Table, place: str = "spec") -> RunSpec:
    """Return the run that a spec without axes describes, or say what is wrong with it and where."""

    def section(name: str, default: str | None = None) -> Table:
        return _section(point.get(name, default), f"{place}: {name}")

    federation = fill(
        Federation, _table(point.get("federation", {}), f"{place}: federation"), f"{place}: federation"
    )
    m = federation.selected
    malice, own = split_attack("attacks", {"name": NONE, **section("attack", NONE)}, f"{place}: attack")
    attack = _chosen("attacks", own, f"{place}: attack")
    poison = _chosen("poisons", section("poison", NONE), f"{place}: poison")
    if attack is not None or poison is not None:
        if malice.fraction is None:
            raise InputError(f"{place}: attack.fraction is needed: the share of malicious clients, e.g. 0.2.")
        share = malice.fraction
    else:
        share = 0.0
    if share == 0:
        attack = None
    elif malice.start > federation.rounds:
        raise InputError(
            f"{place}: attack.start is {malice.start}, but federation.rounds is {federation.rounds}: no attack."
        )
    b = resolve_count(float(share), m)
    counts = {"b": b, "m-b": m - b}
    training = fill(
        need("flanders.simulation").Training,
        _table(point.get("training", {}), f"{place}: training"),
        f"{place}: training",
    )
    if b == m and section("filter", "keep-all").get("keep") == "m-b":
        raise InputError(f"{place}: filter.keep: m-b is 0: all {m} clients of the round are malicious.")
    canonical = {
        "data": _data(_table(point.get("data", {}), f"{place}: data"), f"{place}: data"),
        "model": _chosen("models", section("model", "mlp2"), f"{place}: model"),
        "training": fields_of(training, "training"),
        "federation": {**dataclasses.asdict(federation), "per_round": m},
        "attack": None if attack is None else {**attack, **malice.written()},
        "poison": poison if poison is None or attack is not None else {**poison, **malice.written()},
        "filter": _chosen("filters", section("filter", "keep-all"), f"{place}: filter", counts),
        "aggregator": _rule(section("aggregator", "fedavg"), f"{place}: aggregator", counts),
        "fallback": _rule(section("fallback", NONE), f"{place}: fallback", counts),
    }
    for part in ("filter", "aggregator", "model"):
        if canonical[part] is None:
            raise InputError(f"{place}: {part}.name may not be {NONE!r}. Leave the table out for the default.")
    if INFORMED in (canonical["fallback"] or {}):
        raise InputError(f"{place}: fallback.{INFORMED}: only the aggregator can be told the truth.")
    options = fill(Options, _table(point.get("run", {}), f"{place}: run"), f"{place}: run")
    return RunSpec(canonical, options)


def make(kind: str, chosen: Mapping[str, Any], counts: Mapping[str, int] | None = None, where: str = "spec") -> Any:
    """Build an entry of a registry from the name and parameters in a table."""
    entries = registry(kind)
    name = chosen.get("name")
    if not isinstance(name, str):
        raise InputError(f"{where}.name: which {entries.kind}? Known: {', '.join(entries)}. Got {name!r} instead.")
    try:
        cls = entries[name]
    except InputError as error:
        raise InputError(f"{where}.name: {error}") from error
    return fill(cls, {k: v for k, v in chosen.items() if k != "name"}, where, counts)


def _chosen(kind: str, table: Table, where: str, counts: Mapping[str, int] | None = None) -> Table | None:
    if table.get("name") == NONE:
        if len(table) > 1:
            raise InputError(
                f"{where}: {NONE!r} has no parameters. Got {', '.join(k for k in table if k != 'name')}."
            )
        return None
    return {"name": table.get("name"), **fields_of(make(kind, table, counts, where), where)}


def split_attack(kind: str, table: Table, where: str) -> tuple[Malice, Table]:
    """Part an attack section into who attacks when, and the attack; a key that both have goes to both."""
    mine = {f.name for f in dataclasses.fields(Malice)}
    malice = fill(Malice, {k: v for k, v in table.items() if k in mine}, where)
    name, theirs = table.get("name"), set()
    if isinstance(name, str) and name != NONE and name in registry(kind):
        theirs = set(registry(kind).describe(name).parameters)
    return malice, {k: v for k, v in table.items() if k not in mine or k in theirs}


def _rule(table: Table, where: str, counts: Mapping[str, int]) -> Table | None:
    chain = table.pop(CHAIN, NONE)
    links = [] if chain == NONE else chain if isinstance(chain, list) else [chain]
    before = [
        _chosen("preaggregators", _section(link, f"{where}.{CHAIN}"), f"{where}.{CHAIN}", counts) for link in links
    ]
    informed = convert(table.pop(INFORMED, False), bool, f"{where}.{INFORMED}")
    if reason := NOT_IN_SPECS.get(table.get("name", "")):
        raise InputError(f"{where}: {reason} Choose another rule.")
    rule = _chosen("aggregators", table, where, counts)
    if rule is None and before:
        raise InputError(f"{where}: {CHAIN} need a rule behind them. Give it a name.")
    if informed and (before or rule is None or "num_malicious" not in rule):
        raise InputError(f"{where}.{INFORMED} needs a rule with num_malicious, and no {CHAIN} in front of it.")
    told = {INFORMED: True} if informed else {}  # out of the ordinary: no part of other runs' ids
    return None if rule is None else {**rule, CHAIN: before} | told


def _data(table: Table, where: str) -> Table:
    parts = {
        "dataset": ("datasets", _section(table.get("dataset", "digits"), f"{where}.dataset")),
        "partition": ("partitions", _section(table.get("partition", "dirichlet"), f"{where}.partition")),
    }
    for key, value in table.items():
        if key in parts:
            continue
        has = [
            (part, chosen)
            for part, (kind, chosen) in parts.items()
            if chosen["name"] in registry(kind) and key in registry(kind).describe(chosen["name"]).parameters
        ]
        if len(has) != 1:
            names = " nor ".join(repr(chosen["name"]) for _, chosen in parts.values())
            what = (
                f"neither {names} has such a parameter" if not has else "both the dataset and the partition have it"
            )
            raise InputError(
                f"{where}.{key}: {what}. Write it in a table, e.g. partition = {{ name = ..., {key} = ... }}."
            )
        part, chosen = has[0]
        if key in chosen:
            raise InputError(f"{where}.{key} is given twice, here and in {part}.")
        chosen[key] = value
    return {part: _chosen(kind, chosen, f"{where}.{part}") for part, (kind, chosen) in parts.items()}


def _section(value: Any, where: str) -> Table:
    """Return what was chosen as one table, whether it was a name, a table, or a table inside `name`."""
    table = {"name": value} if isinstance(value, str) else _table(value, where)
    inner = table.get("name")
    if not isinstance(inner, dict):
        return dict(table)
    twice = [key for key in inner if key in table and key != "name"]
    if twice:
        raise InputError(f"{where}.{twice[0]} is given twice: beside `name` and inside it.")
    return {**table, **_section(inner, where)}


def _table(value: Any, where: str) -> Table:
    if not isinstance(value, dict):
        raise InputError(f"{where} must be a table of keys and values. Got {value!r} instead.")
    return value


def _axis_tip(tree: Table, problem: str) -> str:
    """Where a parameter suits only some names of an axis, say how to write that."""
    if "there is no such parameter" not in problem:
        return ""
    for section in SECTIONS:
        table = tree.get(section)
        if isinstance(table, dict) and isinstance(table.get("name"), list) and f": {section}." in problem:
            return (
                ' A parameter that only some of the names have goes with them: name = ["a", {name = "b", key = 1}].'
            )
    return ""
