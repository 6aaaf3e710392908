"""Carries out runs in several processes, and stops them if the user asks for it.

Rounds that were saved before a stop stay in the results file.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Flag
from pathlib import Path
from types import FrameType

from flanders.experiments.engine import Datasets
from flanders.experiments.events import Event, Notify
from flanders.experiments.runner import Stop, work
from flanders.results.schema import ResultsError

THREADS = "OMP_NUM_THREADS"
"""The environment variable that limits the threads of NumPy and PyTorch."""
GRACE = 10.0
"""A worker process is killed if it has not exited this many seconds after its work. Some libraries hang at exit."""
WAIT = 0.2
"""Seconds between two checks of the workers. This time is short, so that a request to stop is soon noticed."""


class Interrupt:
    """Stops runs if the user presses Ctrl-C, or if SIGTERM comes.

    The first of these signals stops the runs after the current round. The second signal stops them immediately.

    Attributes
    ----------
    signal
        The number of the signal that asked for a stop. None if no signal has come.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Whether a signal has asked for a stop."""
        return self.signal is not None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside the `with` block. In a thread other than the main thread, do nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number
        os.write(2, b"\nStopping after this round. Press Ctrl-C again to stop immediately.\n")


@dataclass(frozen=True)
class Finished:
    """The report of a worker that has no work left."""

    worker: int


Report = Event | Finished | ResultsError
"""What a worker reports to the process that started it."""


def run_grid(
    path: Path,
    ids: Sequence[str],
    notify: Notify,
    stop: Stop,
    *,
    jobs: int = 1,
    datasets: Datasets | None = None,
    variables: Mapping[str, str] | None = None,
) -> int:
    """Carry out runs in `jobs` processes, or in this process if `jobs` is 1. Return how many processes died.

    The processes that this function starts have these environment variables, in addition to those of this process.
    """
    if jobs == 1:
        work(path, ids, datasets or Datasets(), notify, stop)
        return 0
    context = multiprocessing.get_context("spawn")
    reports: Queue[Report] = context.Queue()
    halt = context.Event()
    with _environment({**_threads(jobs), **(variables or {})}):
        processes: list[BaseProcess] = [
            context.Process(target=_worker, args=(number, path, ids, reports, halt)) for number in range(jobs)
        ]
        for process in processes:
            process.start()
    workers = Workers(processes)
    problems: list[ResultsError] = []

    def handle(report: Report) -> None:
        if isinstance(report, ResultsError):
            problems.append(report)
            halt.set()
        elif isinstance(report, Finished):
            workers.finished(report.worker)
        else:
            notify(report)

    try:
        while workers.alive():
            for report in _reports(reports):
                handle(report)
            if stop():
                halt.set()
            workers.end_overdue()
        for report in _reports(reports, wait=False):
            handle(report)
    finally:
        workers.end()
    if problems:
        raise problems[-1]
    return workers.died()


class Workers:
    """The worker processes, and which of them have finished."""

    def __init__(self, processes: Sequence[BaseProcess]) -> None:
        self._processes = list(processes)
        self._finished: dict[int, float] = {}

    def alive(self) -> bool:
        """Whether any worker is running."""
        return any(process.is_alive() for process in self._processes)

    def finished(self, worker: int) -> None:
        """Note that a worker has finished its work and is about to exit."""
        self._finished[worker] = time.monotonic()

    def end_overdue(self) -> None:
        """Kill the workers that have finished their work but have not exited in time."""
        for worker, at in self._finished.items():
            if time.monotonic() - at > GRACE and self._processes[worker].is_alive():
                self._processes[worker].kill()

    def end(self) -> None:
        """Kill all workers. Rounds that they have not saved are lost, but no round is saved in part."""
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()

    def died(self) -> int:
        """Return how many workers exited before they had finished their work."""
        ended = enumerate(process.exitcode for process in self._processes)
        return sum(code != 0 and worker not in self._finished for worker, code in ended)


def _reports(reports: Queue[Report], *, wait: bool = True) -> Iterator[Report]:
    """Yield reports until the queue is empty. With `wait`, wait up to `WAIT` seconds for each report."""
    with contextlib.suppress(queue.Empty):
        while True:
            yield reports.get(timeout=WAIT) if wait else reports.get_nowait()


def _worker(number: int, path: Path, ids: Sequence[str], reports: Queue[Report], halt: Flag) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.getLogger("flanders").setLevel(logging.ERROR)  # the results file has the warnings of each round
    parent = multiprocessing.parent_process()

    def stop() -> bool:
        return halt.is_set() or (parent is not None and not parent.is_alive())

    try:
        work(path, ids, Datasets(), reports.put, stop)
        reports.put(Finished(number))
    except ResultsError as error:
        reports.put(ResultsError(str(error)))
        reports.put(Finished(number))


def _threads(jobs: int) -> dict[str, str]:
    """Return the environment variable that gives each of `jobs` processes its share of the cores.

    If the user has set the number of threads, there is none.
    """
    return {} if THREADS in os.environ else {THREADS: str(max(1, (os.cpu_count() or 1) // jobs))}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Give each process that is started in the `with` block these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
