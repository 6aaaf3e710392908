"""Several processes on one grid, and a stop that loses nothing."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from flanders.experiments.build import Datasets
from flanders.experiments.events import Notify
from flanders.experiments.runner import Stop, work
from flanders.results.schema import ResultsError

THREADS = "OMP_NUM_THREADS"


class Interrupt:
    """The first Ctrl-C (or SIGTERM) asks for a stop after the round; the second stops at once.

    Attributes
    ----------
    signal
        What asked for the stop; None while nobody has.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        """Tell whether somebody has asked for a stop."""
        return self.signal is not None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals inside; only the main thread can."""
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
        os.write(2, b"\nStopping after this round. Press Ctrl-C again to stop at once.\n")


def run_grid(
    path: Path, ids: Sequence[str], notify: Notify, stop: Stop, *, jobs: int = 1, datasets: Datasets | None = None
) -> int:
    """Carry out runs in this process, or in `jobs` that share them; return how many processes died on the way."""
    if jobs == 1:
        work(path, ids, datasets or Datasets(), notify, stop)
        return 0
    context = multiprocessing.get_context("spawn")
    events, halt = context.Queue(), context.Event()
    with _threads_shared(jobs):
        processes = [context.Process(target=_worker, args=(path, ids, events, halt)) for _ in range(jobs)]
        for process in processes:
            process.start()
    problem: ResultsError | None = None
    try:
        while True:
            alive = any(process.is_alive() for process in processes)
            with contextlib.suppress(queue.Empty):
                while True:
                    event = events.get(timeout=0.2) if alive else events.get_nowait()
                    if isinstance(event, ResultsError):
                        problem = event
                        halt.set()
                    else:
                        notify(event)
            if stop():
                halt.set()
            if not alive:
                break
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()  # what they have not saved by now is in no transaction
            process.join()
    if problem is not None:
        raise problem
    return sum(process.exitcode != 0 for process in processes)


def _worker(path: Path, ids: Sequence[str], events: Any, halt: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.getLogger("flanders").setLevel(logging.ERROR)  # what is odd in a round is noted in the results
    parent = multiprocessing.parent_process()

    def stop() -> bool:
        return halt.is_set() or (parent is not None and not parent.is_alive())

    try:
        work(path, ids, Datasets(), events.put, stop)
    except ResultsError as error:
        events.put(ResultsError(str(error)))


@contextlib.contextmanager
def _threads_shared(jobs: int) -> Iterator[None]:
    """Give each process its part of the cores, unless the user has said how many threads to use."""
    if THREADS in os.environ:
        yield
        return
    os.environ[THREADS] = str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        del os.environ[THREADS]
