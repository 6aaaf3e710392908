"""From a run's spec to the simulation that carries it out: the one place that knows the simulator."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import flanders
from flanders.catalog import need
from flanders.checks import InputError
from flanders.experiments.sections import Malice
from flanders.experiments.spec import CHAIN, INFORMED, make, split_attack
from flanders.experiments.values import fill
from flanders.results.run import FLOWER, RunSpec
from flanders.results.tree import Table


class Datasets:
    """Datasets that were loaded in this process, each once, for all runs that use them."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def of(self, spec: RunSpec) -> Any:
        """Return the dataset of a run."""
        chosen = spec.canonical["data"]["dataset"]
        key = json.dumps([chosen, str(spec.options.data_dir)], sort_keys=True)
        if key not in self._loaded:
            self._loaded[key] = make("datasets", chosen, where="data.dataset").load(spec.options.data_dir)
        return self._loaded[key]


def make_setting(spec: RunSpec) -> Any:
    """Return the `flanders.simulation.Setting` of a run."""
    simulation = need("flanders.simulation")
    c, o = spec.canonical, spec.options
    federation = c["federation"]
    malice, attack, poison = Malice(), None, None
    if c["poison"] is not None:
        malice, own = split_attack("poisons", c["poison"], "poison")
        poison = make("poisons", own)
    if c["attack"] is not None:
        malice, own = split_attack("attacks", c["attack"], "attack")
        attack = make("attacks", own)
    return simulation.Setting(
        dataset=make("datasets", c["data"]["dataset"]),
        partition=make("partitions", c["data"]["partition"]),
        model=make("models", c["model"]),
        training=fill(simulation.Training, c["training"], "training"),
        num_clients=federation["clients"],
        clients_per_round=federation["per_round"],
        rounds=federation["rounds"],
        seed=federation["seed"],
        attack=attack,
        malicious_fraction=malice.fraction or 0.0,
        attack_start=malice.start,
        rotating=malice.rotating,
        omniscient=malice.omniscient,
        sybils=malice.sybils,
        data_poison=poison,
        filter=make("filters", c["filter"]),
        aggregator=_rule(c["aggregator"]),
        informed=c["aggregator"].get(INFORMED, False),
        fallback=None if c["fallback"] is None else _rule(c["fallback"]),
        device=o.device,
        chunk=o.chunk,
        data_dir=o.data_dir,
    )


def make_simulation(spec: RunSpec, datasets: Datasets) -> Any:
    """Return the `flanders.simulation.Simulation` of a run, at its start, or what takes its place on Flower."""
    if spec.engine == FLOWER:
        return _flower().FlowerSimulation(make_setting(spec), datasets.of(spec))
    return need("flanders.simulation").Simulation(make_setting(spec), datasets.of(spec))


def check(spec: RunSpec, datasets: Datasets) -> None:
    """Find out before the first round whether a run has its data and its device, and load the data."""
    need("flanders.simulation.federation").find_device(spec.options.device)
    if spec.engine == FLOWER:
        _flower().need_ray()
    make_setting(spec)
    datasets.of(spec)


def num_threads() -> int:
    """Return how many threads this process computes with unless told otherwise."""
    need("flanders.simulation")
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with so many threads inside, in PyTorch and in NumPy's linear algebra."""
    limit = importlib.import_module("threadpoolctl").threadpool_limits  # comes with scikit-learn
    torch = sys.modules.get("torch")
    before = num_threads()
    with limit(limits=threads):
        if torch is not None:
            torch.set_num_threads(threads)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def versions() -> dict[str, str]:
    """Return what a run's bytes may depend on besides its spec."""
    found = {"flanders": flanders.__version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("numpy", "torch"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def _flower() -> Any:
    """Import the Flower engine. Flower and Ray tell their makers of each start unless told not to, as here.

    The last switch takes what Ray is about to do anyway, and a warning of it off the screen.
    """
    for switch in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
        os.environ.setdefault(switch, "0")
    try:
        return need("flanders.flower.engine")
    except ModuleNotFoundError as error:
        raise InputError(
            "Runs on Flower need Flower and Ray. Install them with: pip install 'flanders-fl[flower-sim]'."
        ) from error


def _rule(chosen: Table) -> Any:
    rule = make("aggregators", {key: value for key, value in chosen.items() if key not in (CHAIN, INFORMED)})
    for link in reversed(chosen[CHAIN]):
        rule = make("preaggregators", link) | rule
    return rule
