"""Carries out the runs of a results file in this process.

Other processes may work on the same file at the same time. So a process claims a run before it starts the run. A
run that is claimed is not started by another process. From time to time the state of a run is saved, as a
checkpoint. A run that was interrupted continues from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import sysconfig
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from flanders.checks import InputError
from flanders.experiments.engine import Datasets, start
from flanders.experiments.events import Notify, RoundEnded, RunEnded, RunStarted
from flanders.experiments.experiment import Experiment
from flanders.record import RoundRecord
from flanders.results.heartbeat import heartbeat
from flanders.results.schema import ResultsError
from flanders.results.spec_keys import label
from flanders.results.store import Claimed, ClaimLost, Store
from flanders.simulation.thread_limits import computing_with, num_threads

Stop = Callable[[], bool]
"""A function that says whether to stop now."""
CHECKPOINT_SHARE = 0.1
"""The largest share of a run's time that checkpoints may take, so that they slow the run down only a little."""
CHECKPOINT_GAP = 20.0
"""The fewest seconds between two checkpoints. More checkpoints are of little use: after a crash, twenty seconds of
work are quickly repeated."""
WRITE_GAP = 0.5
"""The fewest seconds between two writes of rounds. Rounds that end in between are written together.

A process should write rarely, since only one process can write to the file at a time."""


def work(path: Path, ids: Sequence[str], datasets: Datasets, notify: Notify, stop: Stop) -> None:
    """Carry out the runs with these ids, one after the other, until no run is left to claim or `stop()` is true.

    If a run raises an error, it is marked as failed, and the next run follows. If the results file cannot be
    written, the error is raised.
    """
    threads = num_threads()
    with Store(path, create=False) as store:
        while not stop():
            claimed = store.claim(ids, threads)
            if claimed is None:
                break
            run = claimed.spec.id
            try:
                with heartbeat(path, run), computing_with(claimed.spec.options.threads or threads):
                    status = carry_out(store, claimed, datasets, notify, stop)
                notify(RunEnded(run, status))
            except ClaimLost as error:
                notify(RunEnded(run, "lost", str(error)))
            except ResultsError:
                raise
            except Exception as error:
                message = describe_error(error)
                store.fail(run, message, traceback.format_exc())
                notify(RunEnded(run, "failed", message))
            except BaseException:
                with contextlib.suppress(ResultsError):
                    store.release(run)
                raise


def carry_out(store: Store, claimed: Claimed, datasets: Datasets, notify: Notify, stop: Stop) -> str:
    """Carry out one run from its last checkpoint. Return `done`, or `stopped` if `stop()` became true."""
    run, experiment = claimed.spec.id, Experiment.of(claimed.spec)
    rounds = experiment.setting.federation.rounds
    notify(RunStarted(run, label(claimed.spec.canonical), rounds, claimed.checkpoint))
    simulation = start(experiment, datasets)
    if claimed.checkpoint:
        simulation.load_state_dict(store.read_checkpoint(run, like=simulation.like))
    pace = Pace(experiment.options.checkpoint_every)
    waiting: list[RoundRecord] = []
    try:
        with closing(simulation.run()) as records:  # stops the processes that an engine has started
            for record in records:
                waiting.append(record)
                last, stopping = record.number == rounds, stop()
                if not last and (stopping or pace.due(record.number)):
                    with pace.timed():
                        store.write_rounds(run, waiting, state=simulation.state_dict())
                    waiting.clear()
                elif last or pace.behind():
                    store.write_rounds(run, waiting, last=last)
                    waiting.clear()
                notify(RoundEnded(run, record))
                if last:
                    return "done"
                if stopping:
                    store.release(run)
                    return "stopped"
    finally:
        if waiting:  # a later round has failed
            store.write_rounds(run, waiting)
    raise RuntimeError(f"the simulation ended before round {rounds}")


class Pace:
    """Decides when to write checkpoints and rounds.

    A checkpoint is written every `every` rounds. If `every` is None, `CHECKPOINT_SHARE` and `CHECKPOINT_GAP` decide
    when the next checkpoint is written. Checkpoints do not change the results of a run. They only change how many
    rounds are repeated after a crash.
    """

    def __init__(self, every: int | None) -> None:
        self.every = every
        self._cost = 0.0
        self._checkpoint = self._rounds = time.monotonic()

    def due(self, number: int) -> bool:
        """Whether to write a checkpoint after this round."""
        if self.every is not None:
            return number % self.every == 0
        return time.monotonic() - self._checkpoint >= max(CHECKPOINT_GAP, self._cost * (1 / CHECKPOINT_SHARE - 1))

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Measure the time of the `with` block, which writes a checkpoint."""
        begun = time.monotonic()
        yield
        self._checkpoint = self._rounds = time.monotonic()
        self._cost = self._checkpoint - begun

    def behind(self) -> bool:
        """Whether the rounds that are not written yet should be written now."""
        now = time.monotonic()
        if now - self._rounds < WRITE_GAP:
            return False
        self._rounds = now
        return True


@contextlib.contextmanager
def closing(records: Iterator[RoundRecord]) -> Iterator[Iterator[RoundRecord]]:
    """At the end of the `with` block, close `records` if it is a generator."""
    try:
        yield records
    finally:
        if isinstance(records, Generator):
            records.close()


def describe_error(error: Exception) -> str:
    """Return an error as text: its type, its message, and the line of code that raised it."""
    return f"{type(error).__name__}: {error}{_line_of(error)}"


def _line_of(error: Exception) -> str:
    """Return the file and line of an error. A line of the user's own code is preferred to a line of a library."""
    if isinstance(error, InputError):  # its message says what to do, so the line does not matter
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), "<")
    own = [frame for frame in frames if not frame.filename.startswith(libraries)]
    last = (own or frames)[-1]
    return f" (in {Path(last.filename).name}:{last.lineno})"
