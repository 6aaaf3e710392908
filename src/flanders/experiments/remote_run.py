"""Carries out one run on a machine of a Ray cluster.

The rounds of the run are sent in batches to the process that started all runs (see `cluster`). That process writes
the results file.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from flanders.checks import InputError
from flanders.experiments.engine import Datasets, start, versions
from flanders.experiments.experiment import Experiment
from flanders.experiments.runner import Pace, closing, describe_error
from flanders.record import RoundRecord
from flanders.results.run import RunSpec
from flanders.simulation.thread_limits import computing_with
from flanders.state import state_from_bytes, state_to_bytes

COMPARED = ("flanders", "numpy", "torch")
"""The packages that must have the same version on all machines, since the results of a run depend on them."""


@dataclass(frozen=True)
class Batch:
    """Finished rounds that are sent and written together."""

    records: tuple[RoundRecord, ...]
    state: bytes | None = None
    """The checkpoint, from which the run can continue after these rounds. None if no checkpoint was made."""
    last: bool = False
    """Whether the run is done."""


@dataclass(frozen=True)
class Failure:
    """The report that a run has raised an error."""

    message: str
    traceback: str


def rounds_elsewhere(spec: RunSpec, state: bytes | None, expected: Mapping[str, str]) -> Iterator[Batch | Failure]:
    """Carry out one run and yield its rounds. If `state` is given, the run continues from this checkpoint.

    `expected` has the versions of the packages on the machine that collects the results.
    """
    try:
        check_versions(expected)
        with computing_with(spec.options.threads or 1):
            yield from batches_of(Experiment.of(spec), state, datasets_here())
    except Exception as error:  # reported as a failed run, whatever the error is
        yield Failure(describe_error(error), traceback.format_exc())


def batches_of(experiment: Experiment, state: bytes | None, datasets: Datasets) -> Iterator[Batch]:
    """Carry out one run and yield its rounds, with a checkpoint from time to time."""
    rounds = experiment.setting.federation.rounds
    simulation = start(experiment, datasets)
    if state is not None:
        simulation.load_state_dict(state_from_bytes(state, simulation.like))
    pace = Pace(experiment.options.checkpoint_every)
    waiting: list[RoundRecord] = []
    with closing(simulation.run()) as records:
        for record in records:
            waiting.append(record)
            last = record.number == rounds
            if not last and pace.due(record.number):
                with pace.timed():
                    yield Batch(tuple(waiting), state_to_bytes(simulation.state_dict()))
                waiting.clear()
            elif last or pace.behind():
                yield Batch(tuple(waiting), last=last)
                waiting.clear()


def check_versions(expected: Mapping[str, str]) -> None:
    """Raise an error if the packages of this machine have other versions than `expected`."""
    here = versions()
    if other := [
        f"{name} {here[name]} instead of {expected[name]}" for name in COMPARED if here[name] != expected[name]
    ]:
        raise InputError(
            f"A machine of the cluster has {', '.join(other)}. Install the same versions on all machines: the "
            "results depend on them."
        )


@cache
def datasets_here() -> Datasets:
    """Return the datasets that this process has loaded. All runs in this process share them."""
    return Datasets()
