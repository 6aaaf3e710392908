"""`runs_of`, which returns the runs of a study on a dataset.

The runs are described by the spec files of the study, which are TOML files in the folder `specs`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files

from flanders.checks import InputError, check_number
from flanders.choices import registry
from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import blame_override, override, parse_override
from flanders.experiments.spec import parse_spec
from flanders.results.tree import Table
from flanders.studies.grid_studies import GridStudy

CONTROLS = ("distance-to-global", "persistence", "keep-all")
"""The simple filters with which the studies compare the filter `flanders`."""
CHANGES_BY_DATASET: dict[str, tuple[str, ...]] = {
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
"""The changes to a study's spec for each dataset of the FLANDERS paper. They set the model, the number of clients
and the training to those of the paper."""
FIXED_STUDIES, CHANGES_OF_FIXED_STUDIES = ("fldetector",), ("federation.num_clients=100",)
"""Studies that ask about a certain training and a certain number of rounds. So for another dataset than `digits`,
only the number of clients in their specs is changed."""


def runs_of(
    study: GridStudy,
    *,
    dataset: str = "digits",
    seeds: int = 1,
    attacks: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> list[Experiment]:
    """Return the runs of a study on a dataset, with the seeds 0 to `seeds - 1`. Each run is in the list once.

    If `attacks` are given, they replace the attacks of the study. Specs without `threat.attack` are then left out.
    `overrides` are changes to the specs, each of the form `key=value`.
    """
    check_number("study", "seeds", seeds, 1, whole=True)
    for name in attacks:
        _ = registry("attacks")[name]  # raises an error if there is no such name
    changes = [*changes_for(study.name, dataset), f"federation.seed={list(range(seeds))}", *overrides]
    runs: dict[str, Experiment] = {}
    for name in study.specs:
        tree = read_study_spec(name)
        if attacks:
            if "attack" not in tree["threat"]:
                continue
            tree = override(tree, ["threat", "attack"], list(attacks))
        for text in changes:
            tree = override(tree, *parse_override(text))
        try:
            parsed = parse_spec(tree, (), f"study {study.name}")
        except InputError as error:
            raise blame_override(error, f"study {study.name}", overrides) from error
        for run in parsed:
            runs.setdefault(run.id, run)
    return list(runs.values())


def changes_for(study: str, dataset: str) -> list[str]:
    """Return the changes that a study's spec needs for a dataset, each of the form `key=value`."""
    registry("datasets")[dataset]  # raises an error if there is no such name
    if dataset == "digits":
        return []
    return [
        f"data.dataset={dataset}",
        *(CHANGES_OF_FIXED_STUDIES if study in FIXED_STUDIES else CHANGES_BY_DATASET.get(dataset, ())),
    ]


def read_study_spec(name: str) -> Table:
    """Return the content of a spec file of this package."""
    return tomllib.loads((files("flanders.studies") / "specs" / f"{name}.toml").read_text(encoding="utf-8"))
