from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.conftest import DECISIONS
from flanders.checks import InputError
from flanders.cli import main
from flanders.experiments import remote_run
from flanders.experiments.cluster import MOST_LOSSES, Cluster, ClusterGrid, fill
from flanders.experiments.engine import versions
from flanders.experiments.events import RoundEnded, RunEnded
from flanders.experiments.execution import Workforce
from flanders.experiments.remote_run import Failure, rounds_elsewhere
from flanders.experiments.spec import read_specs
from flanders.results.store import Store

GRID = """
[data]
dataset = "synthetic"
[model]
name = "logistic"
[federation]
num_clients = 6
rounds = 4
seed = {seeds}
[threat]
attack = "gauss"
fraction = 0.34
[filter]
name = ["guard", "keep-all"]
[run]
threads = 1
device = "cpu"
"""


def results_of(path):
    """Return all that a results file says, except times."""
    with sqlite3.connect(path) as connection:
        found = {
            table: sorted(connection.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)
            for table, columns in DECISIONS.items()
        }
    connection.close()
    return found


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(seeds=[0]))
    return path


def test_a_run_elsewhere_sends_the_rounds_that_a_run_here_writes(grid, tmp_path, capsys) -> None:
    here, elsewhere = tmp_path / "here.sqlite", tmp_path / "elsewhere.sqlite"
    assert main(["run", str(grid), "--out", str(here)]) == 0
    specs = [each.spec for each in read_specs([grid], ["run.checkpoint_every=1"])]
    with Store(elsewhere) as store:
        ids = store.add(specs, versions())
        while (claimed := store.claim(ids, 1)) is not None:
            first = list(rounds_elsewhere(claimed.spec, None, versions()))[:2]
            for batch in first:  # then its machine is lost
                store.write_rounds(claimed.spec.id, batch.records, state=batch.state, last=batch.last)
            state = store.read_checkpoint_bytes(claimed.spec.id)
            for batch in rounds_elsewhere(claimed.spec, state, versions()):
                store.write_rounds(claimed.spec.id, batch.records, state=batch.state, last=batch.last)
            assert [r.number for b in first for r in b.records] == [1, 2]
            assert [r.number for r in batch.records] == [4]
    assert results_of(elsewhere) == results_of(here)


def test_an_error_elsewhere_is_sent_back(grid, monkeypatch) -> None:
    (spec, *_) = (each.spec for each in read_specs([grid], []))
    (other,) = rounds_elsewhere(spec, None, {**versions(), "numpy": "1.0"})
    assert "instead of 1.0. Install the same versions on all machines" in other.message
    monkeypatch.setattr(remote_run, "start", lambda *_: 1 / 0)
    (broken,) = rounds_elsewhere(spec, None, versions())
    assert broken.message.startswith("ZeroDivisionError: division by zero (in test_cluster.py:")
    assert "Traceback" in broken.traceback


class FakeTask:
    """A run on a cluster that yields what it is told, and then is lost."""

    def __init__(self, items):
        self.items = list(items)


@pytest.fixture
def fake_cluster(monkeypatch):
    """A cluster whose tasks are lists of what they send."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    plans = []

    class Planned(Cluster):
        def places(self, cpus):
            return 2

        def submit(self, claimed, state):
            return FakeTask(plans.pop(0)(claimed, state))

    def take(task):
        item = task.items.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    monkeypatch.setattr(ray, "wait", lambda tasks, **_: (tasks[:1], tasks[1:]))
    monkeypatch.setattr(ray, "get", take)
    monkeypatch.setattr(ray, "cancel", lambda task: None)
    monkeypatch.setattr(FakeTask, "__next__", lambda task: task, raising=False)
    return Planned(), plans, ray.exceptions


def test_a_lost_run_starts_again_and_a_failed_one_does_not(grid, tmp_path, fake_cluster) -> None:
    cluster, plans, errors = fake_cluster
    path, events = tmp_path / "results.sqlite", []

    def whole(claimed, state):
        return rounds_elsewhere(claimed.spec, state, versions())

    def lost_after_two(claimed, state):
        return [*list(whole(claimed, state))[:2], errors.WorkerCrashedError()]

    def failed(claimed, state):
        return [Failure("KeyError: 'x'", "Traceback")]

    plans += [lost_after_two, failed, whole]
    specs = [each.spec for each in read_specs([grid], ["run.checkpoint_every=1"])]
    with Store(path) as store:
        ids = store.add(specs, versions())
        fill(ClusterGrid(store, cluster, events.append), lambda: store.claim(ids, 1), lambda: False)
        assert {status for _, status in store.unfinished()} == {"failed"}
    assert not plans
    assert [e.status for e in events if isinstance(e, RunEnded)] == ["lost", "failed", "done"]
    assert [e.record.number for e in events if isinstance(e, RoundEnded)] == [1, 2, 3, 4]


def test_a_run_that_ends_its_machine_each_time_fails(grid, tmp_path, fake_cluster) -> None:
    cluster, plans, errors = fake_cluster
    plans += [lambda *_: [errors.WorkerCrashedError()]] * MOST_LOSSES
    events = []
    with Store(tmp_path / "results.sqlite") as store:
        ids = store.add([read_specs([grid], [])[0].spec], versions())
        fill(ClusterGrid(store, cluster, events.append), lambda: store.claim(ids, 1), lambda: False)
        assert [status for _, status in store.unfinished()] == ["failed"]
    assert events[-1].error.startswith("its machine or process was lost 5 times (WorkerCrashedError): it may")


def test_a_stop_gives_all_runs_back(grid, tmp_path, fake_cluster) -> None:
    cluster, plans, _ = fake_cluster
    plans += [lambda *_: []] * 2
    with Store(tmp_path / "results.sqlite") as store:
        ids = store.add([each.spec for each in read_specs([grid], [])], versions())
        running = ClusterGrid(store, cluster, lambda event: None)
        stops = iter([False, True])
        running.collect = lambda: None
        fill(running, lambda: store.claim(ids, 1), lambda: next(stops))
        assert len(running) == 2
        running.cancel()
        assert [status for _, status in store.unfinished()] == ["pending", "pending"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"jobs": 0}, "--jobs must be at least 1"),
        ({"jobs": 2, "on_ray": True}, "--jobs 2 does not go with --on ray"),
        ({"gpus_per_run": 0.5}, "--gpus-per-run is for runs on a cluster"),
        ({"on_ray": True, "gpus_per_run": 0.0}, "--gpus-per-run must be above 0"),
    ],
)
def test_wrong_options_are_named(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        Workforce(**arguments)


@pytest.mark.slow
def test_sixty_runs_over_three_nodes_one_of_them_killed(tmp_path, capsys) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(seeds=list(range(30))))
    here, there = tmp_path / "here.sqlite", tmp_path / "there.sqlite"
    assert main(["run", str(path), "--out", str(here)]) == 0
    script = Path(__file__).with_name("cluster_with_a_loss.py")
    command = [sys.executable, str(script), str(path), str(there), "30"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert told.returncode == 0, told.stderr
    assert "alive: 2" in told.stdout
    assert "starts again elsewhere" in told.stderr
    assert told.stderr.count(": done, round 4") == 60  # each run is done once
    assert len(results_of(there)["run"]) == 60
    assert results_of(there) == results_of(here)
