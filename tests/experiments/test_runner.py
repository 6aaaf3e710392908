from __future__ import annotations

import contextlib
import json
import math
import random
import re
import signal
import sqlite3
import time

import numpy as np
import pytest

from experiments.conftest import command, decisions, finish, hear
from flanders import InputError
from flanders.experiments import runner
from flanders.experiments.engine import Datasets, versions
from flanders.experiments.events import RoundEnded, RunEnded, RunStarted
from flanders.experiments.runner import Pace, work
from flanders.experiments.spec import read_specs
from flanders.experiments.workers import Interrupt, run_grid
from flanders.results.schema import ResultsError
from flanders.results.store import Store
from flanders.results.summary import read_summaries


def never():
    return False


def enter(path, spec, *overrides):
    with Store(path) as store:
        return store.add([run.spec for run in read_specs([spec], overrides)], versions())


def wait_until(path, condition):
    deadline = time.monotonic() + 300  # whether it comes does not hang on how fast
    while time.monotonic() < deadline:
        with contextlib.suppress(ResultsError):  # not there yet
            if condition(read_summaries(path)):
                return
        time.sleep(0.05)
    raise TimeoutError


@pytest.fixture
def uninterrupted(fake, spec, tmp_path):
    path = tmp_path / "uninterrupted.sqlite"
    work(path, enter(path, spec), Datasets(), lambda event: None, never)
    return decisions(path)


def kill_until_done(path, spec, kills, seed, *, moments):
    """Run a grid, killing it at a random statement, or moment every second time; return how often."""
    rng = random.Random(seed)
    killed = 0
    arguments = ["run", spec, "--out", path]
    if not moments:  # which statement is the n-th shall not hang on the clock either
        arguments += ["--set", "run.checkpoint_every=2"]
    for attempt in range(kills):
        if attempt % 2 or not moments:
            process = command(*arguments, FAKE_DEATH=rng.randint(1, 60))
        else:
            process = command(*arguments, FAKE_SECONDS=0.3)
            time.sleep(rng.uniform(0.2, 1.4))
            process.kill()
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        killed += code != 0
        if path.exists() and attempt > 2:
            arguments = ["resume", path]
    code, _, err = finish(command(*arguments))
    assert code == 0, err
    return killed


def test_a_grid_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(uninterrupted, spec, results):
    assert kill_until_done(results, spec, 8, seed=1, moments=False) >= 4
    assert decisions(results) == uninterrupted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_grid_survives_a_hundred_kills(uninterrupted, spec, results, seed):
    assert kill_until_done(results, spec, 100, seed, moments=True) >= 5
    assert decisions(results) == uninterrupted


class Killed(BaseException):
    pass


class Mortal(sqlite3.Connection):
    """A connection whose process dies before the `left`-th statement: nothing after that reaches the file."""

    left = 0

    def execute(self, *args):
        Mortal.left -= 1
        if Mortal.left <= 0:
            raise Killed
        return super().execute(*args)

    def executemany(self, *args):
        Mortal.left -= 1
        if Mortal.left <= 0:
            raise Killed
        return super().executemany(*args)


def test_no_statement_is_a_bad_one_to_die_at(fake, spec, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "WRITE_GAP", 0)  # every round is written at once, however fast they follow
    monkeypatch.setattr(runner, "CHECKPOINT_GAP", math.inf)
    monkeypatch.setattr("flanders.results.heartbeat.HEARTBEAT", 1000)
    small = ("federation.rounds=2", "federation.seed=0", "filter.name={name='flanders', keep=6}")
    whole, connect = tmp_path / "whole.sqlite", sqlite3.connect
    work(whole, enter(whole, spec, *small), Datasets(), lambda event: None, never)
    for statement in range(1, 120, 2):
        path = tmp_path / f"{statement}.sqlite"
        ids = enter(path, spec, *small)
        with monkeypatch.context() as patch:
            patch.setattr(Mortal, "left", statement)
            patch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=Mortal, **kwargs))
            try:
                work(path, ids, Datasets(), lambda event: None, never)
                break
            except Killed:
                pass
        connection = sqlite3.connect(path)
        connection.execute("UPDATE run SET owner = NULL")  # its process is dead
        connection.commit()
        connection.close()
        work(path, ids, Datasets(), lambda event: None, never)
        assert decisions(path) == decisions(whole)
    assert 30 < statement < 119


def test_two_processes_share_a_grid_and_run_each_run_once(uninterrupted, spec, results):
    processes = [command("run", spec, "--out", results, FAKE_SECONDS=0.1) for _ in range(2)]
    ended = []
    for process in processes:
        code, _, err = finish(process)
        assert code == 0, err
        ended += [line.partition("] ")[2] for line in err.splitlines() if ": done" in line]
        ended = [line.partition(":")[0] for line in ended]
    assert len(ended) == len(set(ended)) == 4
    assert decisions(results) == uninterrupted


def test_several_jobs_end_as_one(uninterrupted, spec, results):
    code, out, err = finish(command("run", spec, "--out", results, "--jobs", 3))
    assert code == 0, err
    assert err.count(": done") == 4
    assert decisions(results) == uninterrupted
    assert f"Results: {results}" in out


def start_and_wait_in_round_two(spec, results, gate, jobs=1, **environment):
    """Start a grid whose jobs play a round of a run each, and then wait for the gate; return the process."""
    asked = ("run", spec, "--out", results, "--jobs", jobs, "--set", "run.checkpoint_every=1")
    process = command(*asked, FAKE_GATE=gate, **environment)
    wait_until(results, lambda found: sum(s.rounds for s in found) == jobs)
    return process


def test_jobs_stop_after_their_round_when_the_command_that_started_them_is_killed(
    uninterrupted, spec, results, tmp_path
):
    process = start_and_wait_in_round_two(spec, results, tmp_path / "gate", jobs=2)
    process.kill()
    process.wait()
    (tmp_path / "gate").touch()
    finish(process)  # that is, its jobs
    found = read_summaries(results)
    assert {s.status for s in found} == {"pending"}
    assert sorted(s.rounds for s in found) == [0, 0, 2, 2]
    assert finish(command("resume", results))[0] == 0
    assert decisions(results) == uninterrupted


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_saves_the_round_and_says_how_to_go_on(uninterrupted, spec, results, tmp_path, jobs):
    process = start_and_wait_in_round_two(spec, results, tmp_path / "gate", jobs, FAKE_SECONDS=0.1)
    process.send_signal(signal.SIGINT)
    said = hear(process, "Stopping after this round")
    (tmp_path / "gate").touch()
    code, _, err = finish(process)
    err = said + err
    assert code == 130
    assert f"To continue: flanders resume {results}" in err
    assert "Traceback" not in err
    assert {s.status for s in read_summaries(results)} <= {"pending", "done"}
    begun = any(s.status == "pending" and s.rounds for s in read_summaries(results))
    assert begun or jobs > 1  # jobs are told a little later, and may have ended their runs by then
    code, _, err = finish(command("resume", results))
    assert code == 0
    assert ("continues after round" in err) == begun
    assert decisions(results) == uninterrupted


def test_a_second_ctrl_c_stops_at_once(spec, results, tmp_path):
    process = start_and_wait_in_round_two(spec, results, tmp_path / "gate")  # which nobody opens
    process.send_signal(signal.SIGINT)
    hear(process, "Stopping after this round")
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "Traceback" not in err
    assert {s.status for s in read_summaries(results)} == {"pending"}
    assert sum(s.rounds for s in read_summaries(results)) == 1


def test_a_run_that_fails_is_recorded_and_the_others_go_on(fake, spec, results):
    ids = enter(results, spec, "federation.seed=[13, 1]")
    events = []
    work(results, ids, Datasets(), events.append, never)
    found = read_summaries(results)
    assert sorted(s.status for s in found) == ["done", "done", "failed", "failed"]
    failed = next(s for s in found if s.status == "failed")
    assert re.fullmatch(
        r"ArithmeticError: the thirteenth seed brings no luck \(in fake_simulation.py:\d+\)", failed.error
    )
    assert failed.rounds == 1
    assert RunEnded(failed.id, "failed", failed.error) in events


@pytest.mark.parametrize("fail", [lambda: np.linalg.inv(np.zeros((2, 2))), lambda: json.loads("{")])
def test_an_error_inside_a_library_is_told_by_the_line_that_asked_for_it(fail):
    with pytest.raises(ValueError) as caught:
        fail()
    assert re.fullmatch(r" \(in test_runner.py:\d+\)", runner._line_of(caught.value))
    assert runner._line_of(InputError("it says so itself")) == ""


def test_what_is_done_is_not_run_again(fake, spec, results):
    ids = enter(results, spec)
    work(results, ids, Datasets(), lambda event: None, never)
    events = []
    work(results, enter(results, spec), Datasets(), events.append, never)
    assert events == []


def test_whoever_watches_is_told_of_runs_and_rounds(fake, spec, results):
    ids = enter(results, spec, "federation.seed=0", "federation.rounds=2", "filter.name=keep-all")
    events = []
    work(results, ids, Datasets(), events.append, never)
    kinds = [type(event) for event in events]
    assert kinds == [RunStarted, RoundEnded, RoundEnded, RunEnded]
    record = events[1].record
    assert (record.number, record.kept.sum(), record.malicious.sum()) == (1, 8, 2)


def test_a_results_file_that_cannot_be_written_ends_the_grid(fake, spec, results, monkeypatch):
    ids = enter(results, spec)

    def full(*args, **kwargs):
        raise ResultsError("The disk is full")

    monkeypatch.setattr(Store, "write_rounds", full)
    with pytest.raises(ResultsError, match="disk is full"):
        run_grid(results, ids, lambda event: None, never)
    assert not any(s.status == "failed" for s in read_summaries(results))


def test_a_dataset_is_loaded_once_for_all_runs(fake, spec, results, monkeypatch):
    from flanders.data import DATASETS

    loads = []
    monkeypatch.setattr(DATASETS["synthetic"], "load", lambda self, folder: loads.append(folder))
    work(results, enter(results, spec), Datasets(), lambda event: None, never)
    assert loads == [None]


def test_checkpoints_come_as_asked_or_take_a_tenth_of_the_time(monkeypatch):
    assert [n for n in range(1, 10) if Pace(3).due(n)] == [3, 6, 9]
    clock = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    pace, written = Pace(None), []
    cost = 0.2 * runner.CHECKPOINT_GAP  # so much that the share decides when the next checkpoint is written
    for number in range(1, 1001):
        clock[0] += 1.0
        if pace.due(number):
            written.append(number)
            with pace.timed():
                clock[0] += cost
    assert written[0] == runner.CHECKPOINT_GAP  # less work is not worth one
    assert 0.08 <= cost * len(written) / clock[0] <= 0.12
    cheap = Pace(None)
    for _ in range(5):
        assert not cheap.due(1)
        clock[0] += runner.CHECKPOINT_GAP
        assert cheap.due(1)
        with cheap.timed():
            pass


def test_rounds_wait_for_each_other_but_not_for_long(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    pace, written = Pace(None), []
    for _ in range(20):
        clock[0] += 0.1
        written.append(pace.behind())
    assert 3 <= sum(written) <= 4


def test_rounds_after_the_last_checkpoint_are_repeated_to_the_same_bytes(uninterrupted, spec, results):
    code, _, _ = finish(command("run", spec, "--out", results, "--set", "run.checkpoint_every=4", FAKE_DEATH=145))
    assert code == -signal.SIGKILL
    assert max(s.rounds for s in read_summaries(results)) == 5  # one after the checkpoint
    assert finish(command("resume", results))[0] == 0
    assert decisions(results) == uninterrupted


def test_signals_are_handled_only_while_listening():
    before = signal.getsignal(signal.SIGINT)
    interrupt = Interrupt()
    with interrupt.listening():
        signal.raise_signal(signal.SIGINT)
        assert interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
