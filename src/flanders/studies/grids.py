"""The runs of a study: its spec files, on a dataset, as one grid."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from flanders.checks import InputError, check_number
from flanders.choices import registry
from flanders.experiments.engine import Datasets
from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import blamed, override, parse_override
from flanders.experiments.spec import parse_spec
from flanders.models import tensor_sizes
from flanders.results.tree import Table
from flanders.studies.questions import GridStudy

CONTROLS = ("distance-to-global", "persistence", "keep-all")
"""The filters that each study compares with."""
LAYERS = "model"
"""In a study's spec, `layers = "model"` stands for the sizes of the model's layers."""
REAL: dict[str, tuple[str, ...]] = {
    "mnist": ("federation.num_clients=100", "federation.rounds=50", "training.learning_rate=1e-3"),
    "fashion-mnist": (
        "model.name=mlp4",
        "federation.num_clients=100",
        "federation.rounds=50",
        "training.learning_rate=1e-3",
    ),
    "cifar10": (
        "model.name=cnn6",
        "federation.num_clients=100",
        "federation.rounds=50",
        "training.optimizer=sgd",
        "training.learning_rate=0.01",
        "training.momentum=0.9",
    ),
}
"""The changes to a study's spec for each dataset of the paper, besides the dataset itself."""
FIXED, LARGER = ("fldetector",), ("federation.num_clients=100",)
"""Studies whose training and rounds are part of the question, and the only change that another dataset makes."""


def runs_of(
    study: GridStudy,
    *,
    dataset: str = "digits",
    seeds: int = 1,
    attacks: Sequence[str] = (),
    overrides: Sequence[str] = (),
    data_dir: Path | None = None,
) -> list[Experiment]:
    """Return the runs of a study: its specs on a dataset, with seeds from 0, each run once.

    `attacks` replace the study's own. Specs that have no `threat.attack` are then left out.
    """
    check_number("study", "seeds", seeds, 1, whole=True)
    for name in attacks:
        _ = registry("attacks")[name]  # an unknown one is an error, with a guess
    changes = [*changes_for(study.name, dataset), f"federation.seed={list(range(seeds))}", *overrides]
    runs: dict[str, Experiment] = {}
    for name in study.specs:
        tree = read_spec(name)
        if attacks:
            if "attack" not in tree["threat"]:
                continue
            tree = override(tree, ["threat", "attack"], list(attacks))
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
    data = Datasets().of(spec.carried_out(replace(spec.options, data_dir=data_dir)))
    module = spec.setting.model.build(data.input_shape, data.num_classes)
    layers = [layer for layer in module.modules() if not list(layer.children()) and list(layer.parameters())]
    return [sum(tensor_sizes(layer)) for layer in layers]


def _mentions_layers(tree: Any) -> bool:
    if isinstance(tree, dict):
        return tree.get("layers") == LAYERS or any(map(_mentions_layers, tree.values()))
    return isinstance(tree, list) and any(map(_mentions_layers, tree))


def _with_layers(tree: Any, sizes: Sequence[int]) -> Any:
    if isinstance(tree, dict):
        given = {key: _with_layers(value, sizes) for key, value in tree.items()}
        return {**given, "layers": [list(sizes)]} if tree.get("layers") == LAYERS else given
    return [_with_layers(value, sizes) for value in tree] if isinstance(tree, list) else tree
