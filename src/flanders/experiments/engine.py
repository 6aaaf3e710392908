"""Starts a run on its engine. The two engines are the simulator of this package and Flower's simulation runtime."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import flanders
from flanders.arrays import Array
from flanders.data import Dataset, Loader
from flanders.experiments.experiment import Experiment
from flanders.extras import needing
from flanders.record import RoundRecord
from flanders.results.spec_keys import FLOWER
from flanders.simulation.simulation import Simulation
from flanders.simulation.world import find_device

if TYPE_CHECKING:
    from flanders.flower.engine.simulation import FlowerSimulation


class StartedRun(Protocol):
    """A run that an engine carries out, round by round."""

    @property
    def like(self) -> Array:
        """An array of the library and on the device that the run uses. `load_state` needs such an array."""

    def run(self) -> Iterator[RoundRecord]:
        """Carry out the remaining rounds. Yield the record of each round."""

    def state_dict(self) -> dict[str, object]:
        """Return the state from which the run can continue."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state_dict` returned."""


class Datasets:
    """The datasets that this process has loaded. Each is loaded once and used for all runs that need it."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[Loader, Path | None], Dataset] = {}

    def of(self, experiment: Experiment) -> Dataset:
        """Return the dataset of a run."""
        loader, folder = experiment.setting.data.dataset, experiment.options.data_dir
        if (loader, folder) not in self._loaded:
            self._loaded[loader, folder] = loader.load(folder)
        return self._loaded[loader, folder]


def start(experiment: Experiment, datasets: Datasets) -> StartedRun:
    """Return a run on its engine, ready for its first round."""
    data = datasets.of(experiment)
    if experiment.engine == FLOWER:
        return _flower()(experiment.setting, data)
    return Simulation(experiment.setting, data)


def check(experiment: Experiment, datasets: Datasets) -> None:
    """Load the data of a run. Raise an error if its data, its device or its engine is missing."""
    find_device(experiment.options.device)
    if experiment.engine == FLOWER:
        _flower()
    datasets.of(experiment)


def uses_cuda(experiment: Experiment) -> bool:
    """Whether a run computes on an NVIDIA GPU of this machine."""
    return find_device(experiment.options.device).type == "cuda"


def versions() -> dict[str, str]:
    """Return the versions of the software on which the results of a run may depend."""
    result = {
        "flanders": flanders.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for package in ("numpy", "torch"):
        try:
            result[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            result[package] = "none"
    return result


def _flower() -> type[FlowerSimulation]:
    """Import and return the Flower engine. If a package is missing, raise an error that says what to install."""
    with needing("flower-sim"):
        from flanders.flower.engine.runtime import need_ray
        from flanders.flower.engine.simulation import FlowerSimulation
    need_ray()
    return FlowerSimulation
