"""What `flanders run` and `flanders resume` do: prepare runs, carry them out, and print a summary."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from flanders.checks import InputError
from flanders.experiments.engine import Datasets, check, versions
from flanders.experiments.experiment import Experiment
from flanders.experiments.progress import watching
from flanders.experiments.workers import Interrupt, run_grid
from flanders.report.text import print_summaries
from flanders.results.labels import labels
from flanders.results.run import FLOWER, Options
from flanders.results.store import Store
from flanders.results.summary import read_summaries

SHOWN = 4
"""If several runs failed with the same error, at most this many are named."""
REFUSED = InputError.__name__
"""The first word of the error of a run whose spec is wrong. Such a run would fail again."""


class OptionChanges(TypedDict, total=False):
    """Options that the command line sets for all runs. They replace those of the specs."""

    device: str
    data_dir: Path


def run_experiments(path: Path, experiments: Sequence[Experiment], changes: OptionChanges, jobs: int) -> int:
    """Add runs to a results file, carry out those that are not done, and return the exit code."""
    asked = [each.with_options(_absolute(replace(each.options, **changes))) for each in experiments]
    datasets = Datasets()
    if not path.exists():  # if data are missing, do not leave an empty results file
        for each in asked:
            check(each, datasets)
    with Store(path) as store:
        ids = store.add([each.spec for each in asked], versions())
    return _carry_on(path, ids, changes, jobs, datasets)


def run_with_output_to_stderr(
    path: Path, experiments: Sequence[Experiment], changes: OptionChanges, jobs: int
) -> int:
    """Do what `run_experiments` does, but print to the error stream. The caller prints tables of its own."""
    with contextlib.redirect_stdout(sys.stderr):
        return run_experiments(path, experiments, changes, jobs)


def resume_experiments(path: Path, changes: OptionChanges, jobs: int) -> int:
    """Continue the runs of a results file that are not done, and return the exit code."""
    ids = [summary.id for summary in read_summaries(path)]
    return _carry_on(path, ids, changes, jobs, Datasets())


def _carry_on(path: Path, ids: Sequence[str], changes: OptionChanges, jobs: int, datasets: Datasets) -> int:
    with Store(path, create=False) as store:
        unfinished = [Experiment.of(spec) for spec, _ in store.unfinished(ids)]
        left, refused = _startable(unfinished, changes, datasets)
        if jobs > 1 and any(each.engine == FLOWER for each in left):
            raise InputError(
                f"--jobs {jobs} does not work with the Flower engine: each run uses all cores already. Omit it."
            )
        for id_, problem in refused.items():
            store.refuse(id_, problem)
        store.retry([each.id for each in left], changes)
    jobs = max(1, min(jobs, len(left)))
    names = dict(zip((each.id for each in left), labels([each.canonical for each in left]), strict=True))
    stop, died = Interrupt(), 0
    try:
        with stop.listening(), watching(len(ids), len(ids) - len(left), names) as notify:
            todo = [each.id for each in left]
            died = run_grid(path, todo, notify, stop, jobs=jobs, datasets=datasets if jobs == 1 else None)
    except KeyboardInterrupt:  # the second Ctrl-C: only the current round is lost
        pass
    with Store(path, create=False) as store:
        store.compact()
    return _sum_up(path, ids, stop, died)


def _startable(
    experiments: Sequence[Experiment], changes: OptionChanges, datasets: Datasets
) -> tuple[list[Experiment], dict[str, str]]:
    """Return the runs that can start, and what is wrong with the others, by id. Complain if none can start."""
    left, refused = [], dict[str, str]()
    for each in experiments:
        try:
            check(each.with_options(replace(each.options, **changes)), datasets)
            left.append(each)
        except InputError as error:
            refused[each.id] = f"{REFUSED}: {error}"
    if refused and not left:
        id_, problem = next(iter(refused.items()))
        raise InputError(f"Run {id_}: {problem.removeprefix(f'{REFUSED}: ')}")
    return left, refused


def _absolute(options: Options) -> Options:
    """Return options with an absolute path, so that the run can be resumed from another folder."""
    return options if options.data_dir is None else replace(options, data_dir=options.data_dir.absolute())


def _sum_up(path: Path, ids: Sequence[str], stop: Interrupt, died: int) -> int:
    found = read_summaries(path, ids)
    print_summaries(found)
    print(f"Results: {path}")
    failed = [s for s in found if s.status == "failed"]
    left = [s for s in found if s.status in ("pending", "running")]
    problems: dict[str, list[str]] = {}
    for s in failed:
        problems.setdefault(str(s.error), []).append(s.id)
    for problem, failed_ids in problems.items():
        more = f" and {len(failed_ids) - SHOWN} more" if len(failed_ids) > SHOWN else ""
        print(f"failed: {', '.join(failed_ids[:SHOWN])}{more}: {problem}", file=sys.stderr)
    if stop.signal is not None:
        saved = sum(s.rounds for s in found)
        print(
            f"Stopped. {len(found) - len(left)} of {len(found)} runs are finished and {saved} rounds are saved. "
            f"To continue: flanders resume {path}",
            file=sys.stderr,
        )
        return 128 + signal.Signals(stop.signal)
    if died:
        print(f"{died} of the processes died. The rounds that they had saved are kept.", file=sys.stderr)
    if left:
        print(
            f"{len(left)} runs are not done. If no other process does them: flanders resume {path}", file=sys.stderr
        )
    if failed:
        refused = sum(str(s.error).startswith(f"{REFUSED}: ") for s in failed)
        again = f" To try {'the others' if refused else 'them'} again: flanders resume {path}"
        again = again if refused < len(failed) else ""
        change = (
            f" {refused} failed because of their specs: correct these, or the files that they name."
            if refused
            else ""
        )
        print(f"{len(failed)} of {len(found)} runs failed.{change}{again}", file=sys.stderr)
    return 1 if failed or died else 0
