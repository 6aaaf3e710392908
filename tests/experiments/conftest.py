from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import flanders
from experiments import fake_simulation

SCRIPT = Path(fake_simulation.__file__)
SPEC = """
[data]
dataset = "synthetic"
[federation]
num_clients = 8
rounds = 6
seed = [0, 1]
[threat]
attack = "gauss"
fraction = 0.25
[filter]
name = [{ name = "flanders", keep = "m-b" }, "keep-all"]
"""
DECISIONS = {
    "run": "id, spec, status, error, owner",
    "round": "run, number, accuracy, loss, attack_success, threshold, note",
    "client": "run, round, client, fate, score, probability, reason, malicious",
    "checkpoint": "run, part, round",
}


@pytest.fixture
def fake(monkeypatch):
    """The small simulator in place of the real one, in this process."""
    fake_simulation.use(monkeypatch)


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.sqlite"


def command(*arguments, script=(str(SCRIPT),), **environment):
    """Start the `flanders` command with the small simulator in a process of its own."""
    source = str(Path(flanders.__file__).parents[1])
    env = {
        **os.environ,
        "PYTHONPATH": source,
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in environment.items()},
    }
    return subprocess.Popen(
        [sys.executable, *script, *map(str, arguments)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Wait for a process, and return its exit code and what it said."""
    try:
        out, err = process.communicate(timeout=300)  # a busy machine starts Ray slowly
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out, err


def hear(process, words):
    """Wait until a process says something on standard error, and return what it has said so far."""
    said = b""
    while words.encode() not in said:
        piece = os.read(process.stderr.fileno(), 10_000)
        assert piece, said.decode()  # it has ended
        said += piece
    return said.decode()


def decisions(path):
    """Return every row of a results file but for times, to the last bit."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {
            table: sorted(repr(row) for row in connection.execute(f"SELECT {columns} FROM {table}"))
            for table, columns in DECISIONS.items()
        }
    finally:
        connection.close()
