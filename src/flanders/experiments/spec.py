"""Reads spec files and returns the runs that they describe.

A spec file is a TOML file. Its tables are the fields of `flanders.simulation.Setting`. All tables are optional. An
attack, a filter, or anything else that is chosen by name is written as its name, or as a table of its name and its
parameters. A list means a run for each of its values. With several lists, there is a run for each combination of
their values. All these combinations are the grid of the spec (see `flanders.experiments.grid`)::

    [data]
    dataset = "digits"
    partition = "dirichlet"
    alpha = [0.5, 10.0]                     # a parameter of the dataset or of the partition
    [model]
    name = "mlp2"
    [training]
    learning_rate = 0.01
    [federation]
    num_clients = 100
    clients_per_round = 1.0                 # a fraction, or a number of clients
    rounds = 50
    seed = [0, 1, 2]
    [threat]
    attack = ["none", "lie", { name = "gauss", sigma = 5 }]
    fraction = [0.2, 0.8]
    start = 2
    [filter]
    name = ["keep-all", { name = "flanders", keep = "m-b" }]
    [aggregator]
    name = "multi-krum"
    num_malicious = "b"
    preaggregators = "nnm"                  # prepares the updates; a chain of two is [["bucketing", "nnm"]]
    [fallback]
    name = "median"
    [run]                                   # how to compute; it does not change a run's id, and has no lists
    device = "auto"

`"b"` is the number of malicious clients in a round: `ceil(fraction * m)`, where m is the number of clients in a
round. It is 0 without an attack. `"m-b"` is the number of all other clients in a round. If a parameter may be None,
`"none"` stands for None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from flanders.checks import InputError, did_you_mean
from flanders.choices import registry
from flanders.experiments.annotations import hints_of
from flanders.experiments.experiment import Experiment, canonical_setting
from flanders.experiments.filling import Filler, as_table, one_table
from flanders.experiments.grid import blame_override, expand, override, parse_override, read_toml
from flanders.results.tree import Table
from flanders.simulation.setting import Federation, Setting, Threat

SECTIONS = tuple(hints_of(Setting))
"""The names of the tables and keys at the top level of a spec."""
DEFAULT_DATA = {"dataset": "digits", "partition": "dirichlet"}
"""The dataset and the partition of a spec that does not name them."""


def read_specs(paths: Iterable[Path], overrides: Sequence[str] = ()) -> list[Experiment]:
    """Read spec files and return their runs, each once, in the order of the files.

    `overrides` are texts `KEY=VALUE`. Each sets a key in all specs.
    """
    runs: dict[str, Experiment] = {}
    for path in paths:
        for run in parse_spec(read_toml(Path(path)), overrides, str(path)):
            runs.setdefault(run.id, run)
    return list(runs.values())


def parse_spec(tree: Table, overrides: Sequence[str] = (), place: str = "spec") -> list[Experiment]:
    """Return the runs that a spec describes, each once, in the order of its grid.

    `overrides` are texts `KEY=VALUE`. Each sets a key of the spec. `place` is the name of the spec in errors.
    """
    for text in overrides:
        tree = override(tree, *parse_override(text))
    try:
        return _runs(tree, place)
    except InputError as error:
        raise blame_override(error, place, overrides) from error


def _runs(tree: Table, place: str) -> list[Experiment]:
    for section in tree:
        if section not in SECTIONS:
            guess = did_you_mean(section, SECTIONS)
            raise InputError(f"{place}: there is no table {section!r}.{guess} Known: {', '.join(SECTIONS)}.")
    for key, value in as_table(tree.get("run", {}), f"{place}: run").items():
        if isinstance(value, list):
            raise InputError(f"{place}: run.{key} cannot be a list: it would describe the same run several times.")
    runs: dict[str, Experiment] = {}
    for point in expand(tree, place):
        try:
            run = resolve(point, place)
        except InputError as error:
            raise InputError(f"{error}{_axis_tip(tree, str(error))}") from error
        runs.setdefault(run.id, run)
    return list(runs.values())


def resolve(point: Table, place: str = "spec") -> Experiment:
    """Return the run that one point of a grid describes. A point is a spec without lists of values.

    If a key is wrong, raise an error that names it. `place` is the name of the spec in this error.
    """
    federation = Filler().fill(
        Federation, as_table(point.get("federation", {}), f"{place}: federation"), f"{place}: federation"
    )
    threat = _threat(as_table(point.get("threat", {}), f"{place}: threat"), federation, f"{place}: threat")
    b = threat.malicious_of(federation.selected)
    filler = Filler({"b": b, "m-b": federation.selected - b})
    data = _data(as_table(point.get("data", {}), f"{place}: data"), f"{place}: data")
    whole = {**point, "data": data, "federation": federation, "threat": threat}
    return Experiment(canonical_setting(filler.fill(Setting, whole, f"{place}: ")))


def _threat(table: Table, federation: Federation, where: str) -> Threat:
    """Return the threat of a spec. Without an attack and without a data poison, it is the default, `Threat()`."""
    threat = Filler().fill(Threat, table, where)
    if not threat.exists:
        return Threat()
    if "fraction" not in table:
        raise InputError(f"{where}.fraction is needed: the share of malicious clients, e.g. 0.2.")
    if threat.fraction > 0 and threat.start > federation.rounds:
        raise InputError(
            f"{where}.start is {threat.start}, but federation.rounds is {federation.rounds}: the attack would "
            "never start. Lower `start`, or raise `rounds`."
        )
    return replace(threat, attack=None) if threat.fraction == 0 else threat


def _data(table: Table, where: str) -> Table:
    """Return the table of the dataset and the table of the partition.

    A spec may have the parameters of the dataset and of the partition directly in the table `data`. Then they are
    moved into the table of the dataset or of the partition.
    """
    parts = {part: one_table(table.get(part, default), f"{where}.{part}") for part, default in DEFAULT_DATA.items()}
    for key, value in table.items():
        if key in parts:
            continue
        owners = [part for part, chosen in parts.items() if key in _parameters(f"{part}s", chosen.get("name"))]
        if len(owners) != 1:
            names = " nor ".join(repr(chosen.get("name")) for chosen in parts.values())
            what = (
                f"neither {names} has such a parameter"
                if not owners
                else "both the dataset and the partition have it"
            )
            raise InputError(
                f"{where}.{key}: {what}. Write it in a table, e.g. partition = {{ name = ..., {key} = ... }}."
            )
        (part,) = owners
        if key in parts[part]:
            raise InputError(f"{where}.{key} is given twice, here and in {part}.")
        parts[part][key] = value
    return parts


def _parameters(kind: str, name: object) -> set[str]:
    """Return the names of the parameters of an entry, e.g. of the dataset `digits`.

    If there is no such entry, return no names. A later check reports the wrong name.
    """
    entries = registry(kind)
    return set(entries.describe(name).parameters) if isinstance(name, str) and name in entries else set()


def _axis_tip(tree: Table, problem: str) -> str:
    """Return advice for the error that a parameter does not exist. Return an empty text for other errors.

    The advice is for a section with a list of names, since a parameter may belong to only some of these names.
    """
    if "there is no such parameter" not in problem:
        return ""
    for section in SECTIONS:
        table = tree.get(section)
        if isinstance(table, dict) and isinstance(table.get("name"), list) and f": {section}." in problem:
            return (
                " Not all names in the list have this parameter. Write it beside the name: "
                'name = ["a", {name = "b", key = 1}].'
            )
    return ""
