"""Carries out runs on the machines of a Ray cluster (`flanders run --on ray`).

Each run is a Ray task. Ray chooses a machine for each task. The task sends the results of its rounds to the process
that started all runs. Only the process that started the runs writes the results file. From time to time the task
also sends the state of its run, a checkpoint. If a machine is lost, its runs continue from their last checkpoints
on another machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flanders.checks import InputError
from flanders.experiments.engine import versions
from flanders.experiments.events import Notify, RoundEnded, RunEnded, RunStarted
from flanders.experiments.experiment import Experiment
from flanders.experiments.remote_run import Batch, Failure, rounds_elsewhere
from flanders.experiments.runner import Stop
from flanders.extras import needing
from flanders.results.claims import HEARTBEAT
from flanders.results.spec_keys import label
from flanders.results.store import Claimed, ClaimLost, Store

if TYPE_CHECKING:
    from ray import ObjectRefGenerator

WAIT = 1.0
"""Seconds between two checks for a request to stop."""
AHEAD = 2
"""If the cluster has room for n runs at the same time, Ray gets up to `AHEAD` times n runs.

The additional runs wait at Ray. When a run ends, Ray starts one of them without a delay."""
MOST_LOSSES = 5
"""If the machine or process of a run is lost this many times, the run is marked as failed. Otherwise it starts
again.

The run itself may cause the losses, e.g. if it needs too much memory."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Environment variables that stop Ray from sending usage statistics, and silence one of its warnings."""


@dataclass(frozen=True)
class Cluster:
    """A connection to a Ray cluster.

    Parameters
    ----------
    gpus_per_run
        The number of GPUs that each run gets. If it is below 1, several runs share a GPU. By default, a run gets
        one GPU if the cluster has GPUs.
    """

    gpus_per_run: float | None = None

    def places(self, cpus: int) -> int:
        """Return how many runs the cluster can carry out at the same time if each run gets `cpus` CPUs."""
        share, by_cpu = self.gpus("auto"), int(resource("CPU") // cpus)
        return max(1, min(by_cpu, int(resource("GPU") / share)) if share else by_cpu)

    def gpus(self, device: str) -> float:
        """Return the number of GPUs that a run gets if it computes on this device."""
        if device == "cpu" or not resource("GPU"):
            return 0.0
        return 1.0 if self.gpus_per_run is None else self.gpus_per_run

    def submit(self, claimed: Claimed, state: bytes | None) -> ObjectRefGenerator:
        """Give a run to Ray. The returned generator yields the rounds as they end."""
        import ray

        options = claimed.spec.options
        task: Any = ray.remote(rounds_elsewhere).options(
            num_cpus=options.threads or 1,
            num_gpus=self.gpus(options.device),
            num_returns="streaming",
            max_retries=0,  # `ClusterGrid` submits the run again, from its last checkpoint
            name=f"flanders {claimed.spec.id}",
        )
        submitted: ObjectRefGenerator = task.remote(claimed.spec, state, versions())
        return submitted


def resource(name: str) -> float:
    """Return how much of a resource all machines of the cluster have together."""
    import ray

    resources: Callable[[], dict[str, float]] = ray.cluster_resources
    return resources().get(name, 0.0)


@contextlib.contextmanager
def connected(gpus_per_run: float | None) -> Iterator[Cluster]:
    """Connect to a Ray cluster until the `with` block ends.

    The cluster is on this machine, or it is the one that the environment variable RAY_ADDRESS names.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with needing("cluster"):
        import ray
    joined = not ray.is_initialized()
    if joined:
        try:
            ray.init(address="auto", log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise InputError(
                "--on ray needs a Ray cluster, and there is none. Start one with `ray start --head` on one machine "
                "and `ray start --address=...` on the other machines. If there is a cluster elsewhere, name it in "
                "the environment variable RAY_ADDRESS."
            ) from error
    try:
        yield Cluster(gpus_per_run)
    finally:
        if joined:
            ray.shutdown()


class ClusterGrid:
    """The runs that were given to Ray. Ray carries out some of them now, and the rest later.

    Parameters
    ----------
    store
        The results file. Only this object writes to it.
    cluster
        The cluster.
    notify
        Called with each event: a run starts, a round ends, a run ends.
    """

    def __init__(self, store: Store, cluster: Cluster, notify: Notify) -> None:
        self.store, self.cluster, self.notify = store, cluster, notify
        self._running: dict[ObjectRefGenerator, Claimed] = {}
        self._losses: dict[str, int] = {}
        self._beat = time.monotonic()

    def __len__(self) -> int:
        return len(self._running)

    def add(self, claimed: Claimed) -> None:
        """Give a run to Ray. This process has claimed the run, so no other process carries it out."""
        run = claimed.spec.id
        experiment = Experiment.of(claimed.spec)
        rounds = experiment.setting.federation.rounds
        state = self.store.read_checkpoint_bytes(run) if claimed.checkpoint else None
        self.notify(RunStarted(run, label(claimed.spec.canonical), rounds, claimed.checkpoint))
        self._running[self.cluster.submit(claimed, state)] = claimed

    def collect(self) -> None:
        """Wait a moment for finished rounds, and write those that have arrived to the results file."""
        import ray

        ready, _ = ray.wait(list(self._running), timeout=WAIT, fetch_local=False)
        for task in [task for task in self._running if task in ready]:
            claimed = self._running[task]
            try:
                result: Batch | Failure = ray.get(next(task))
            except StopIteration:
                self._lose(task, "its rounds ended too early")
                continue
            except ray.exceptions.RayError as error:
                self._lose(task, type(error).__name__)
                continue
            try:
                self._write(task, claimed.spec.id, result)
            except ClaimLost as error:
                self._end(task, "lost", str(error))
        if time.monotonic() - self._beat > HEARTBEAT:  # tell other processes that these runs are not abandoned
            for claimed in self._running.values():
                self.store.beat(claimed.spec.id)
            self._beat = time.monotonic()

    def cancel(self) -> None:
        """Stop all runs. They can be resumed from their last checkpoints."""
        import ray

        for task, claimed in list(self._running.items()):
            with contextlib.suppress(ray.exceptions.RayError, TypeError):
                ray.cancel(task)
            self.store.release(claimed.spec.id)
            self._end(task, "stopped")

    def _write(self, task: ObjectRefGenerator, run: str, result: Batch | Failure) -> None:
        if isinstance(result, Failure):
            self.store.fail(run, result.message, result.traceback)
            self._end(task, "failed", result.message)
            return
        self.store.write_rounds(run, result.records, state=result.state, last=result.last)
        for record in result.records:
            self.notify(RoundEnded(run, record))
        if result.last:
            self._end(task, "done")

    def _lose(self, task: ObjectRefGenerator, why: str) -> None:
        """End a task whose machine or process was lost.

        The run of the task starts again. But if the run was lost `MOST_LOSSES` times, it has failed.
        """
        run = self._running[task].spec.id
        self._losses[run] = self._losses.get(run, 0) + 1
        if self._losses[run] < MOST_LOSSES:
            self.store.release(run)
            self._end(task, "lost", f"its machine or process was lost ({why}); it starts again elsewhere")
        else:
            message = f"its machine or process was lost {MOST_LOSSES} times ({why}): it may need more memory"
            self.store.fail(run, message, "")
            self._end(task, "failed", message)

    def _end(self, task: ObjectRefGenerator, status: str, error: str = "") -> None:
        self.notify(RunEnded(self._running.pop(task).spec.id, status, error))


def run_on_cluster(path: Path, ids: Sequence[str], notify: Notify, stop: Stop, cluster: Cluster) -> None:
    """Carry out runs on a cluster, until none is left or `stop()` is true."""
    with Store(path, create=False) as store:
        grid = ClusterGrid(store, cluster, notify)
        try:
            fill(grid, lambda: store.claim(ids, 1), stop)
        finally:
            grid.cancel()


def fill(grid: ClusterGrid, claim: Callable[[], Claimed | None], stop: Stop) -> None:
    """Give runs to the cluster and collect their rounds, until no run is left or `stop()` is true."""
    while not stop():
        while len(grid) < AHEAD * grid.cluster.places(1) and (claimed := claim()) is not None:
            grid.add(claimed)
        if not len(grid):
            return
        grid.collect()
