"""Studies that vary one thing: a spec for each, run through the results file, resumable like any other grid."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from flanders.catalog import registry
from flanders.checks import InputError, check_number, did_you_mean
from flanders.experiments.build import Datasets
from flanders.experiments.grid import blamed, override, parse_override
from flanders.experiments.spec import make, parse_spec
from flanders.models import tensor_sizes
from flanders.results.run import RunSpec
from flanders.results.tree import Table

CONTROLS = ("distance-to-global", "persistence", "keep-all")
LAYERS = "model"
"""In a study's spec, `layers = "model"` stands for the sizes of the model's layers."""
REAL: dict[str, tuple[str, ...]] = {
    "mnist": ("federation.clients=100", "federation.rounds=50", "training.learning_rate=1e-3"),
    "fashion-mnist": (
        "model.name=mlp4",
        "federation.clients=100",
        "federation.rounds=50",
        "training.learning_rate=1e-3",
    ),
    "cifar10": (
        "model.name=cnn6",
        "federation.clients=100",
        "federation.rounds=50",
        "training.optimizer=sgd",
        "training.learning_rate=0.01",
        "training.momentum=0.9",
    ),
}
"""What else a study changes when it is given a dataset of the paper: model, clients, rounds, training."""
FIXED, LARGER = ("fldetector",), ("federation.clients=100",)
"""Studies whose training and rounds belong to the question, and all that another dataset changes for them."""


@dataclass(frozen=True)
class GridStudy:
    """A question put to a grid of runs."""

    name: str
    question: str
    axes: tuple[str, ...]
    """What is varied: keys of the canonical spec."""
    label: str
    """What to write along the axis."""
    specs: tuple[str, ...]

    def point(self, spec: Mapping[str, Any]) -> str:
        """Return where on the axes a run stands, in words."""
        return ", ".join(word for axis in self.axes if (word := describe(axis, _at(spec, axis))))


def _study(name: str, question: str, axes: str, label: str, specs: str = "") -> GridStudy:
    return GridStudy(name, question, tuple(axes.split()), label, tuple((specs or name).split()))


STUDIES = {
    study.name: study
    for study in (
        _study(
            "sampled-parameters",
            "How many parameters must the filter look at?",
            "filter.sample",
            "sampled parameters",
        ),
        _study("refit", "How often must A and B be estimated?", "filter.refit_every", "rounds between fits"),
        _study("distance", "Which distance to the forecast?", "filter.distance filter.center", "distance"),
        _study("window", "How many rounds should the model be fitted to?", "filter.window", "window l"),
        _study("order", "Of which order should the model be?", "filter.order", "order w (l = 6)"),
        _study(
            "alpha",
            "How different may the data of the clients be?",
            "data.partition.alpha",
            "Dirichlet concentration",
        ),
        _study("selection", "Which parameters to sample?", "filter.sampling filter.sample", "sample"),
        _study(
            "fldetector",
            "FLDetector on its own terms, and where malicious clients rotate.",
            "training.optimizer attack.rotating",
            "training and attackers",
            "fldetector fldetector-backdoor fldetector-epochs",
        ),
    )
}


PREDICTABILITY = _study("predictability", "Are honest clients more predictable?", "attack.name", "attack")
"""Not a grid of results but of measurements: see `flanders.studies.predictability`."""


def find(name: str) -> GridStudy:
    """Return the study of that name."""
    known = {PREDICTABILITY.name: PREDICTABILITY, **STUDIES}
    if name not in known:
        raise InputError(f"There is no study {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return known[name]


def runs_of(
    study: GridStudy,
    *,
    dataset: str = "digits",
    seeds: int = 1,
    attacks: Sequence[str] = (),
    overrides: Sequence[str] = (),
    data_dir: Path | None = None,
) -> list[RunSpec]:
    """Return the runs of a study: its specs on a dataset, with seeds from 0, each run once.

    `attacks` take the place of the study's own; specs without an attack by name are then left out.
    """
    check_number("study", "seeds", seeds, 1, whole=True)
    for name in attacks:
        _ = registry("attacks")[name]  # an unknown one is an error, with a guess
    changes = [*changes_for(study.name, dataset), f"federation.seed={list(range(seeds))}", *overrides]
    runs: dict[str, RunSpec] = {}
    for name in study.specs:
        tree = read_spec(name)
        if attacks:
            if "name" not in tree["attack"]:
                continue
            tree = override(tree, ["attack", "name"], list(attacks))
        for text in changes:
            tree = override(tree, *parse_override(text))
        if _mentions_layers(tree):
            tree = _with_layers(tree, layer_sizes(tree, data_dir))
        try:
            found = parse_spec(tree, (), f"study {study.name}")
        except InputError as error:
            raise blamed(error, f"study {study.name}", overrides) from error
        for run in found:
            runs.setdefault(run.id, run)
    return list(runs.values())


def changes_for(study: str, dataset: str) -> list[str]:
    """Return the overrides that put a study on a dataset."""
    registry("datasets")[dataset]  # an unknown one is an error, with a guess
    if dataset == "digits":
        return []
    return [f"data.dataset={dataset}", *(LARGER if study in FIXED else REAL.get(dataset, ()))]


def read_spec(name: str) -> Table:
    """Return a study's spec, from the package."""
    return tomllib.loads((files("flanders.studies") / "specs" / f"{name}.toml").read_text(encoding="utf-8"))


def layer_sizes(tree: Table, data_dir: Path | None = None) -> list[int]:
    """Return how many parameters each layer of the model of a spec has, weights and bias together."""
    (spec,) = parse_spec({"data": {"dataset": tree["data"]["dataset"]}, "model": tree["model"]})
    data = Datasets().of(RunSpec(spec.canonical, replace(spec.options, data_dir=data_dir)))
    module = make("models", spec.canonical["model"]).build(data.input_shape, data.num_classes)
    layers = [layer for layer in module.modules() if not list(layer.children()) and list(layer.parameters())]
    return [sum(tensor_sizes(layer)) for layer in layers]


def describe(axis: str, value: Any) -> str:
    """Return one value of an axis in words.

    Examples
    --------
    >>> describe("filter.sample", None), describe("attack.rotating", False), describe("filter.distance", 0.5)
    ('all', 'fixed', '0.5')
    """
    words: dict[str, dict[Any, str]] = {
        "filter.sample": {None: "all"},
        "filter.center": {True: "centred", False: "", None: ""},
        "attack.rotating": {True: "rotating", False: "fixed"},
        "training.optimizer": {"sgd": "one step", "adam": "one epoch"},
    }
    known = words.get(axis, {})
    return known[value] if value in known else f"{value:g}" if isinstance(value, float) else str(value)


def _at(spec: Mapping[str, Any], key: str) -> Any:
    """Return the value at a dotted key; an attack's, where the clients poison their data instead, from there."""
    section, *rest = key.split(".")
    found: Any = spec[section]
    if found is None and section == "attack":
        found = spec["poison"]
    for part in rest:
        found = found.get(part)
    return found


def _mentions_layers(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree.get("layers") == LAYERS or any(map(_mentions_layers, tree.values()))
    return isinstance(tree, list) and any(map(_mentions_layers, tree))


def _with_layers(tree: Any, sizes: Sequence[int]) -> Any:
    if isinstance(tree, dict):
        given = {key: _with_layers(value, sizes) for key, value in tree.items()}
        return {**given, "layers": [list(sizes)]} if tree.get("layers") == LAYERS else given
    return [_with_layers(value, sizes) for value in tree] if isinstance(tree, list) else tree
