"""The work of `flanders run` and `flanders resume`: prepare runs, carry them out, and print a summary."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from flanders.checks import InputError
from flanders.experiments.cluster import connected, run_on_cluster
from flanders.experiments.engine import Datasets, check, uses_cuda, versions
from flanders.experiments.events import Event
from flanders.experiments.experiment import Experiment
from flanders.experiments.progress import watching
from flanders.experiments.run_callbacks import GridCallbacks, Make
from flanders.experiments.shared_gpu import sharing_gpu
from flanders.experiments.workers import Interrupt, run_grid
from flanders.plain_text import first_few
from flanders.report.text import print_summaries
from flanders.results.labels import short_labels
from flanders.results.spec_keys import FLOWER
from flanders.results.store import Store
from flanders.results.summary import read_summaries

SHOWN = 4
"""If several runs failed with the same error, at most this many of them are named, so that the line stays short."""
REFUSED = InputError.__name__
"""The first word of the stored error if a run failed because of wrong input, e.g. in its spec."""


class OptionChanges(TypedDict, total=False):
    """Options that the command line sets for all runs. They replace the same options in the specs."""

    device: str
    data_dir: Path


@dataclass(frozen=True)
class Workforce:
    """What carries out the runs: processes of this machine, or a Ray cluster."""

    jobs: int = 1
    """The number of processes that work at the same time."""
    on_ray: bool = False
    """Whether the machines of a Ray cluster carry out the runs."""
    gpus_per_run: float | None = None
    """On a cluster, the number of GPUs that each run gets, e.g. 0.25. None means 1, if the cluster has GPUs."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise InputError(f"--jobs must be at least 1. Got {self.jobs} instead.")
        if self.on_ray and self.jobs > 1:
            raise InputError(f"--jobs {self.jobs} does not go with --on ray: Ray shares out the runs. Omit --jobs.")
        if self.gpus_per_run is not None:
            if not self.on_ray:
                raise InputError("--gpus-per-run is for runs on a cluster. Add --on ray, or omit --gpus-per-run.")
            if not 0 < self.gpus_per_run < math.inf:
                raise InputError(f"--gpus-per-run must be above 0. Got {self.gpus_per_run} instead.")


def run_experiments(
    path: Path,
    experiments: Sequence[Experiment],
    changes: OptionChanges,
    workforce: Workforce,
    callbacks: Sequence[Make] = (),
) -> int:
    """Add runs to a results file, carry out those of them that are not done, and return the exit code."""
    changed = [_absolute(each.with_options(**changes)) for each in experiments]
    datasets = Datasets()
    if not path.exists():  # if data are missing, do not leave an empty results file
        for each in changed:
            check(_as_checked_here(each, workforce), datasets)
    with Store(path) as store:
        ids = store.add([each.spec for each in changed], versions())
    return _carry_on(path, ids, changes, workforce, datasets, callbacks)


def run_with_output_to_stderr(
    path: Path, experiments: Sequence[Experiment], changes: OptionChanges, workforce: Workforce
) -> int:
    """Do what `run_experiments` does, but print to standard error.

    So standard output has only the tables that the caller prints.
    """
    with contextlib.redirect_stdout(sys.stderr):
        return run_experiments(path, experiments, changes, workforce)


def resume_experiments(
    path: Path, changes: OptionChanges, workforce: Workforce, callbacks: Sequence[Make] = ()
) -> int:
    """Continue the runs of a results file that are not done, and return the exit code."""
    ids = [summary.id for summary in read_summaries(path)]
    return _carry_on(path, ids, changes, workforce, Datasets(), callbacks)


def _carry_on(
    path: Path,
    ids: Sequence[str],
    changes: OptionChanges,
    workforce: Workforce,
    datasets: Datasets,
    callbacks: Sequence[Make],
) -> int:
    """Carry out those of the given runs that are not done, print a summary, and return the exit code."""
    with Store(path, create=False) as store:
        unfinished = [Experiment.of(spec) for spec, _ in store.unfinished(ids)]
        startable, refused = _startable(unfinished, changes, workforce, datasets)
        if (workforce.jobs > 1 or workforce.on_ray) and any(each.engine == FLOWER for each in startable):
            option = "--on ray" if workforce.on_ray else f"--jobs {workforce.jobs}"
            raise InputError(
                f"{option} does not work with the Flower engine: each run uses all cores already. Omit the option."
            )
        for id_, problem in refused.items():
            store.refuse(id_, problem)
        store.retry([each.id for each in startable], changes)
    jobs = max(1, min(workforce.jobs, len(startable)))
    specs = {each.id: each.canonical for each in startable}
    names = dict(zip(specs, short_labels(list(specs.values())), strict=True))
    changed = [each.with_options(**changes) for each in startable]
    stop, died, call_back = Interrupt(), 0, GridCallbacks(callbacks, names, specs)
    try:
        with (
            stop.listening(),
            sharing_gpu(jobs > 1 and any(map(uses_cuda, changed))) as variables,
            watching(len(ids), len(ids) - len(startable), names) as show,
        ):

            def notify(event: Event) -> None:
                show(event)
                call_back(event)

            todo = [each.id for each in startable]
            if workforce.on_ray:
                with connected(workforce.gpus_per_run) as cluster:
                    run_on_cluster(path, todo, notify, stop, cluster)
            else:
                loaded = datasets if jobs == 1 else None
                died = run_grid(path, todo, notify, stop, jobs=jobs, datasets=loaded, variables=variables)
    except KeyboardInterrupt:  # the second Ctrl-C; saved rounds are kept
        pass
    finally:
        call_back.close()
    with Store(path, create=False) as store:
        store.compact()
    return _sum_up(path, ids, stop, died)


def _startable(
    experiments: Sequence[Experiment], changes: OptionChanges, workforce: Workforce, datasets: Datasets
) -> tuple[list[Experiment], dict[str, str]]:
    """Return the runs that can start, and the errors of the other runs by id.

    If no run can start, raise the first error.
    """
    startable, refused = [], dict[str, str]()
    for each in experiments:
        try:
            check(_as_checked_here(each.with_options(**changes), workforce), datasets)
            startable.append(each)
        except InputError as error:
            refused[each.id] = f"{REFUSED}: {error}"
    if refused and not startable:
        id_, problem = next(iter(refused.items()))
        raise InputError(f"Run {id_}: {problem.removeprefix(f'{REFUSED}: ')}")
    return startable, refused


def _as_checked_here(experiment: Experiment, workforce: Workforce) -> Experiment:
    """Return a run as this machine can check it.

    If a cluster carries out the run, the device of the run is replaced by `cpu`. The machines of the cluster may
    have a device that this machine does not have.
    """
    return experiment.with_options(device="cpu") if workforce.on_ray else experiment


def _absolute(experiment: Experiment) -> Experiment:
    """Return a run with an absolute `data_dir`, so that it can be resumed in another working folder."""
    folder = experiment.options.data_dir
    return experiment if folder is None else experiment.with_options(data_dir=folder.absolute())


def _sum_up(path: Path, ids: Sequence[str], stop: Interrupt, died: int) -> int:
    """Print what became of the runs, and return the exit code. `died` is the number of processes that died."""
    summaries = read_summaries(path, ids)
    print_summaries(summaries)
    print(f"Results: {path}")
    failed = [s for s in summaries if s.status == "failed"]
    left = [s for s in summaries if s.status in ("pending", "running")]
    problems: dict[str, list[str]] = {}
    for s in failed:
        problems.setdefault(str(s.error), []).append(s.id)
    for problem, failed_ids in problems.items():
        print(f"failed: {first_few(failed_ids, SHOWN)}: {problem}", file=sys.stderr)
    if stop.signal is not None:
        saved = sum(s.rounds for s in summaries)
        print(
            f"Stopped. {len(summaries) - len(left)} of {len(summaries)} runs are finished, and {saved} rounds are "
            f"saved. To continue: flanders resume {path}",
            file=sys.stderr,
        )
        return 128 + signal.Signals(stop.signal)
    if died:
        print(f"{died} of the processes died. The rounds that they had saved are kept.", file=sys.stderr)
    if left:
        print(
            f"{len(left)} runs are not done. If no other process carries them out: flanders resume {path}",
            file=sys.stderr,
        )
    if failed:
        refused = sum(str(s.error).startswith(f"{REFUSED}: ") for s in failed)
        again = f" To try {'the other failed runs' if refused else 'them'} again: flanders resume {path}"
        again = again if refused < len(failed) else ""
        change = (
            f" {refused} failed because of their specs: correct the specs, or the files that they name."
            if refused
            else ""
        )
        print(f"{len(failed)} of {len(summaries)} runs failed.{change}{again}", file=sys.stderr)
    return 1 if failed or died else 0
