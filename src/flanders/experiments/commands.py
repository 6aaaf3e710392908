"""What `flanders run` and `flanders resume` do around a grid: prepare, watch, stop, sum up."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flanders.checks import InputError
from flanders.experiments.build import Datasets, check, versions
from flanders.experiments.progress import watching
from flanders.experiments.workers import Interrupt, run_grid
from flanders.report.text import print_summaries
from flanders.results.labels import labels
from flanders.results.run import FLOWER, Options, RunSpec
from flanders.results.store import Store
from flanders.results.summary import read_summaries

SHOWN = 4
"""Runs named of those that failed in the same way."""
REFUSED = InputError.__name__
"""How the error of a run begins that fails by what was asked for, however often it is tried."""


def run_specs(path: Path, specs: Sequence[RunSpec], changes: dict[str, Any], jobs: int) -> int:
    """Enter runs into a results file, carry out what is not done, and return the exit code.

    `changes` are options (`device`, `data_dir`) that hold for all of them.
    """
    specs = [RunSpec(spec.canonical, _settled(replace(spec.options, **changes))) for spec in specs]
    datasets = Datasets()
    if not path.exists():  # wrong data should not leave an empty results file
        for spec in specs:
            check(spec, datasets)
    with Store(path) as store:
        ids = store.add(specs, versions())
    return _carry_on(path, ids, changes, jobs, datasets)


def run_aside(path: Path, specs: Sequence[RunSpec], changes: dict[str, Any], jobs: int) -> int:
    """Do the same for a command that prints tables of its own: what is told on the way goes to the error stream."""
    with contextlib.redirect_stdout(sys.stderr):
        return run_specs(path, specs, changes, jobs)


def resume(path: Path, changes: dict[str, Any], jobs: int) -> int:
    """Carry on with everything in a results file that is not done, and return the exit code."""
    ids = [summary.id for summary in read_summaries(path)]
    return _carry_on(path, ids, changes, jobs, Datasets())


def _carry_on(path: Path, ids: Sequence[str], changes: dict[str, Any], jobs: int, datasets: Datasets) -> int:
    with Store(path, create=False) as store:
        unfinished = [spec for spec, _ in store.unfinished(ids)]
        left, refused = _buildable(unfinished, changes, datasets)
        if jobs > 1 and any(spec.engine == FLOWER for spec in left):
            raise InputError(
                f"--jobs {jobs} cannot share runs on Flower: each of them takes all cores already. Leave it out."
            )
        for id_, problem in refused.items():
            store.refuse(id_, problem)
        store.retry([spec.id for spec in left], changes)
    jobs = max(1, min(jobs, len(left)))
    names = dict(zip((spec.id for spec in left), labels([spec.canonical for spec in left]), strict=True))
    stop, died = Interrupt(), 0
    try:
        with stop.listening(), watching(len(ids), len(ids) - len(left), names) as notify:
            todo = [spec.id for spec in left]
            died = run_grid(path, todo, notify, stop, jobs=jobs, datasets=datasets if jobs == 1 else None)
    except KeyboardInterrupt:  # the second one: the round is lost, nothing else
        pass
    with Store(path, create=False) as store:
        store.compact()
    return _sum_up(path, ids, stop, died)


def _buildable(
    specs: Sequence[RunSpec], changes: dict[str, Any], datasets: Datasets
) -> tuple[list[RunSpec], dict[str, str]]:
    """Part runs into those that can be begun, and what is wrong with the others; complain if none can."""
    left, refused = [], dict[str, str]()
    for spec in specs:
        try:
            check(RunSpec(spec.canonical, replace(spec.options, **changes)), datasets)
            left.append(spec)
        except InputError as error:
            refused[spec.id] = f"{REFUSED}: {error}"
    if refused and not left:
        id_, problem = next(iter(refused.items()))
        raise InputError(f"Run {id_}: {problem.removeprefix(f'{REFUSED}: ')}")
    return left, refused


def _settled(options: Options) -> Options:
    """Return options that mean the same when the run is resumed from another folder."""
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
    for problem, whose in problems.items():
        more = f" and {len(whose) - SHOWN} more" if len(whose) > SHOWN else ""
        print(f"failed: {', '.join(whose[:SHOWN])}{more}: {problem}", file=sys.stderr)
    if stop.signal is not None:
        saved = sum(s.rounds for s in found)
        print(
            f"Stopped. {len(found) - len(left)} of {len(found)} runs are finished and {saved} rounds are saved. "
            f"To go on: flanders resume {path}",
            file=sys.stderr,
        )
        return 128 + signal.Signals(stop.signal)
    if died:
        print(f"{died} of the processes died; what they had saved is there.", file=sys.stderr)
    if left:
        print(f"{len(left)} runs are left to other processes, or to: flanders resume {path}", file=sys.stderr)
    if failed:
        doomed = sum(str(s.error).startswith(f"{REFUSED}: ") for s in failed)
        again = f" To try {'the others' if doomed else 'them'} again: flanders resume {path}"
        again = again if doomed < len(failed) else ""
        change = f" {doomed} by what they ask for: change the spec, or what it names." if doomed else ""
        print(f"{len(failed)} of {len(found)} runs failed.{change}{again}", file=sys.stderr)
    return 1 if failed or died else 0
