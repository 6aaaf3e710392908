"""What `flanders run` and `flanders resume` do around a grid: prepare, watch, stop, sum up."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from flanders.experiments.build import Datasets, check, versions
from flanders.experiments.labels import labels
from flanders.experiments.progress import watching
from flanders.experiments.show import closing_table
from flanders.experiments.spec import FLOWER, Options, RunSpec
from flanders.experiments.store import Store
from flanders.experiments.summary import summarise
from flanders.experiments.workers import Interrupt, run_grid
from flanders.types import InputError


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
    ids = [summary.id for summary in summarise(path)]
    return _carry_on(path, ids, changes, jobs, Datasets())


def _carry_on(path: Path, ids: Sequence[str], changes: dict[str, Any], jobs: int, datasets: Datasets) -> int:
    with Store(path, create=False) as store:
        store.retry(ids, changes)
        left = [spec for spec, _ in store.unfinished(ids)]
    for spec in left:
        check(spec, datasets)
    if jobs > 1 and any(spec.engine == FLOWER for spec in left):
        raise InputError(
            f"--jobs {jobs} cannot share runs on Flower: each of them takes all cores already. Leave it out."
        )
    jobs = max(1, min(jobs, len(left)))
    names = dict(zip((spec.id for spec in left), labels([spec.canonical for spec in left]), strict=True))
    stop, died = Interrupt(), 0
    try:
        with stop.listening(), watching(len(ids), len(ids) - len(left), names) as notify:
            died = run_grid(path, ids, notify, stop, jobs=jobs, datasets=datasets if jobs == 1 else None)
    except KeyboardInterrupt:  # the second one: the round is lost, nothing else
        pass
    with Store(path, create=False) as store:
        store.compact()
    return _sum_up(path, ids, stop, died)


def _settled(options: Options) -> Options:
    """Return options that mean the same when the run is resumed from another folder."""
    return options if options.data_dir is None else replace(options, data_dir=options.data_dir.absolute())


def _sum_up(path: Path, ids: Sequence[str], stop: Interrupt, died: int) -> int:
    found = summarise(path, ids)
    closing_table(found)
    print(f"Results: {path}")
    failed = [s for s in found if s.status == "failed"]
    left = [s for s in found if s.status in ("pending", "running")]
    for s in failed:
        print(f"failed: {s.id}: {s.error}", file=sys.stderr)
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
        print(
            f"{len(failed)} of {len(found)} runs failed. To try them again: flanders resume {path}", file=sys.stderr
        )
    return 1 if failed or died else 0
