from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import subprocess
import tempfile
import threading
import types
from pathlib import Path

import pytest

from flanders.experiments import engine, execution, shared_gpu, workers
from flanders.experiments.execution import Workforce, resume_experiments, run_experiments
from flanders.experiments.shared_gpu import CONTROL, LOGS, PIPES, VISIBLE, sharing_gpu
from flanders.experiments.spec import read_specs

FAKE = """#!/bin/sh
# NVIDIA's program: with -f it is the daemon, else it passes a command on to the daemon.
if [ "$1" = -f ]; then
    echo "start $CUDA_VISIBLE_DEVICES" >> "{notes}/calls"
    echo $$ > "{notes}/pid"
    {start}
    echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/pid"
    touch "$CUDA_MPS_LOG_DIRECTORY/control.log"
    exec sleep 60
fi
read command
if [ -z "$CUDA_MPS_PIPE_DIRECTORY" ]; then
    {default}
fi
[ -f "$CUDA_MPS_PIPE_DIRECTORY/pid" ] || exit 1
if [ "$command" = quit ]; then
    echo quit >> "{notes}/calls"
    {quit}
    kill $(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")
fi
"""
SPEC = """
[data]
dataset = "synthetic"
[federation]
num_clients = 4
rounds = 1
seed = [0, 1]
"""


class Machine:
    """A machine with a GPU on which NVIDIA's program notes how it is called."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._patch = folder, patch
        self.programs, self.temporary, self.notes = (folder / name for name in ("programs", "tmp", "notes"))
        for each in (self.programs, self.temporary, self.notes):
            each.mkdir()
        patch.setenv("PATH", str(self.programs), prepend=os.pathsep)
        patch.setattr(tempfile, "tempdir", str(self.temporary))
        patch.setattr(shared_gpu, "PAUSE", 0.01)
        patch.setattr(shared_gpu, "PROBE", "")
        for name in (PIPES, LOGS, VISIBLE):
            patch.delenv(name, raising=False)
        self.install()

    def install(self, start: str = ":", default: str = "exit 1", quit: str = ":") -> None:
        """Install NVIDIA's program: what it does before it starts, if the default daemon is asked, and to quit."""
        program = self.programs / CONTROL
        program.write_text(FAKE.format(notes=self.notes, start=start, default=default, quit=quit))
        program.chmod(0o755)

    def calls(self) -> list[str]:
        """Return how the daemon was started and stopped."""
        path = self.notes / "calls"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []

    def daemon_is_gone(self) -> bool:
        """Whether neither the process of the daemon nor its folder is there."""
        note = self.notes / "pid"
        if note.exists():  # else it was ended before it could note its number
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(note.read_text()), 0)
                return False
        return list(self.temporary.iterdir()) == []


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_processes_share_the_gpu_through_a_daemon_that_is_started_once_and_quit_once(machine, caplog):
    before = dict(os.environ)
    with sharing_gpu(True) as variables:
        assert set(variables) == {PIPES, LOGS}
        folder = Path(variables[PIPES])
        assert folder.parent == machine.temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        assert Path(variables[LOGS], "control.log").exists()
        assert machine.calls() == ["start"]
        assert dict(os.environ) == before
    assert machine.calls() == ["start", "quit"]
    assert machine.daemon_is_gone()
    assert errors(caplog) == []


@pytest.mark.parametrize("why", ["not wanted", "the user has set the folder", "a daemon answers"])
def test_no_daemon_is_started_if_none_is_needed(machine, monkeypatch, caplog, why):
    if why == "the user has set the folder":
        monkeypatch.setenv(PIPES, str(machine.folder))
    if why == "a daemon answers":
        machine.install(default="exit 0")
    with sharing_gpu(why != "not wanted") as variables:
        assert variables == {}
    assert machine.calls() == []
    assert errors(caplog) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("it ends", "ended with exit code 3: You may not do this."),
        ("it does not answer", "has not answered after 20 seconds"),
        ("the user's daemon does not answer", "timed out after 0.1 seconds"),
        ("no process can use the GPU", "no process can use the GPU through it: CUDA error 805"),
        ("there is no such program", f"No such file or directory: '{CONTROL}'"),
    ],
)
def test_a_daemon_that_cannot_be_started_is_told_in_one_line(machine, monkeypatch, caplog, fault, said):
    if fault == "it ends":
        machine.install(start="echo 'Hello.'; echo 'You may not do this.'; exit 3")
    elif fault == "it does not answer":
        machine.install(start="exec sleep 60")
        clock = types.SimpleNamespace(monotonic=itertools.count(0, 1000).__next__, sleep=lambda seconds: None)
        monkeypatch.setattr(shared_gpu, "time", clock)
    elif fault == "the user's daemon does not answer":
        machine.install(default="exec sleep 60")
        monkeypatch.setattr(shared_gpu, "LIMIT", 0.1)
    elif fault == "no process can use the GPU":
        monkeypatch.setattr(shared_gpu, "PROBE", "raise SystemExit('CUDA error 805')")
    else:
        monkeypatch.setenv("PATH", str(machine.temporary))
    with sharing_gpu(True) as variables:
        assert variables == {}
        assert machine.daemon_is_gone()
    (line,) = errors(caplog)
    assert said in line
    assert "take turns on the GPU" in line
    assert "\n" not in line


@pytest.mark.parametrize("quit", ["exec sleep 60", "exit 0", "exit 1"])
def test_a_daemon_that_does_not_quit_is_killed(machine, monkeypatch, quit):
    machine.install(quit=quit)
    with sharing_gpu(True) as variables:
        assert variables
        monkeypatch.setattr(shared_gpu, "LIMIT", 0.1)
    assert machine.daemon_is_gone()


def test_a_daemon_that_needs_a_moment_to_quit_is_not_killed(machine):
    end = f"sleep 0.2; echo end >> {machine.notes}/calls; exit"
    machine.install(
        start=f"trap '{end}' TERM; echo $$ > $CUDA_MPS_PIPE_DIRECTORY/pid; while :; do sleep 0.02; done"
    )
    with sharing_gpu(True):
        pass
    assert machine.calls() == ["start", "quit", "end"]
    assert machine.daemon_is_gone()


@pytest.mark.parametrize("stopped", [KeyboardInterrupt, RuntimeError])
def test_the_daemon_ends_if_the_grid_is_interrupted(machine, stopped):
    with pytest.raises(stopped), sharing_gpu(True):
        raise stopped
    assert machine.calls() == ["start", "quit"]
    assert machine.daemon_is_gone()


def test_the_daemon_ends_if_the_user_does_not_wait_for_it(machine, monkeypatch):
    def interrupted(command, variables):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), sharing_gpu(True):
        monkeypatch.setattr(shared_gpu, "_send", interrupted)
    assert machine.daemon_is_gone()


@pytest.mark.parametrize(("user", "seen"), [("2,3", "0,1"), ("GPU-4e1d", None), ("", None)])
def test_processes_count_the_gpus_that_the_user_has_chosen_from_zero(machine, monkeypatch, user, seen):
    monkeypatch.setenv(VISIBLE, user)
    with sharing_gpu(True) as variables:
        assert variables.get(VISIBLE) == seen
    assert machine.calls()[0] == f"start {user}".strip()


class Process:
    """A worker that notes its environment, and needs no time to start."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(["sh", "-c", f"env > {self._notes}/worker-$$"])

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        self._process.wait()

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()


@pytest.fixture
def grid(machine, fake, monkeypatch):
    """A function that carries out a grid of two runs, and returns the environments of its workers."""

    def device(name):
        return types.SimpleNamespace(type="cpu" if name == "cpu" else "cuda")

    def context(method):
        assert method == "spawn"  # so that only the environment of a worker matters
        return types.SimpleNamespace(
            Queue=queue.Queue, Event=threading.Event, Process=lambda **_: Process(machine.notes)
        )

    def run(jobs, device):
        spec = machine.folder / "spec.toml"
        spec.write_text(SPEC)
        runs = read_specs([spec], [])
        run_experiments(machine.folder / "results.sqlite", runs, {"device": device}, Workforce(jobs))
        texts = [path.read_text() for path in machine.notes.glob("worker-*")]
        return [dict(line.split("=", 1) for line in text.splitlines() if "=" in line) for text in texts]

    monkeypatch.setattr(engine, "find_device", device)
    monkeypatch.setattr(workers, "multiprocessing", types.SimpleNamespace(get_context=context))
    monkeypatch.setattr(workers, "WAIT", 0.01)
    return run


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_the_workers_of_a_grid_find_the_daemon_and_no_other_process_does(machine, grid, monkeypatch, device):
    monkeypatch.setenv(VISIBLE, "3")
    before = dict(os.environ)
    first, second = grid(2, device)
    assert first[PIPES] == second[PIPES]
    assert first[PIPES].startswith(str(machine.temporary))
    assert first[VISIBLE] == "0"
    assert dict(os.environ) == before
    assert machine.calls() == ["start 3", "quit"]
    assert machine.daemon_is_gone()


@pytest.mark.parametrize(("jobs", "device"), [(1, "cuda"), (2, "cpu")])
def test_a_grid_of_one_process_or_on_a_cpu_has_no_daemon(machine, grid, jobs, device):
    environments = grid(jobs, device)
    assert len(environments) == (jobs if jobs > 1 else 0)
    assert not any(PIPES in each for each in environments)
    assert machine.calls() == []


def test_a_grid_that_is_resumed_on_a_gpu_has_a_daemon(machine, grid):
    grid(2, "cpu")
    assert machine.calls() == []
    resume_experiments(machine.folder / "results.sqlite", {"device": "cuda"}, Workforce(2))
    assert machine.calls() == ["start", "quit"]


def test_a_grid_runs_without_the_daemon_if_it_cannot_be_started(machine, grid):
    machine.install(start="exit 1")
    environments = grid(2, "cuda")
    assert len(environments) == 2
    assert not any(PIPES in each for each in environments)


def test_the_daemon_outlives_the_workers_and_ends_after_an_error(machine, grid, monkeypatch):
    def fail(*_args, **_options):
        assert machine.calls() == ["start"]
        raise RuntimeError("no more")

    monkeypatch.setattr(execution, "run_grid", fail)
    with pytest.raises(RuntimeError, match="no more"):
        grid(2, "cuda")
    assert machine.calls() == ["start", "quit"]
    assert machine.daemon_is_gone()
