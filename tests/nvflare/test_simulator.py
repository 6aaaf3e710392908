"""Whole jobs in NVFLARE's simulator: the example of the guide, with honest and hostile clients."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flanders.nvflare  # noqa: F401  # so that its saved memory can be loaded
from flanders.state import load_state

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
SAVED = Path("digits", "server", "simulate_job", "app_server", "FL_global_model.pt")

pytestmark = pytest.mark.slow


def start_job(workspace, *options):
    command = [sys.executable, "job.py", "--workspace", str(workspace), *map(str, options)]
    with open(workspace.with_suffix(".log"), "w") as log:
        return subprocess.Popen(command, cwd=EXAMPLE, stdout=log, stderr=log, start_new_session=True)


def run_job(workspace, *options):
    """Return the accuracy after a job, and for each round the sites that were not kept."""
    process = start_job(workspace, *options)
    assert process.wait(timeout=600) == 0, workspace.with_suffix(".log").read_text()[-3000:]
    text = workspace.with_suffix(".log").read_text()
    rounds = re.findall(r"flanders: round \d+: kept (.*)", text)
    accuracy = float(re.findall(r"^accuracy (.*)", text, re.MULTILINE)[-1])
    return accuracy, [set(re.findall(r"site-\d+(?= \[)", line)) for line in rounds]


def test_noise_is_dropped_and_ruins_the_bare_federation(tmp_path) -> None:
    accuracy, unused = run_job(tmp_path / "protected", "--rounds", 6)
    bare, _ = run_job(tmp_path / "bare", "--rounds", 6, "--bare")
    assert unused == [{"site-1", "site-2", "site-3"}] * 6
    assert bare < 0.4 < 0.7 < accuracy


def test_an_honest_federation_keeps_everyone(tmp_path) -> None:
    accuracy, unused = run_job(tmp_path / "honest", "--rounds", 4, "--malicious", 0)
    assert unused == [set()] * 4
    assert accuracy > 0.5


@pytest.mark.parametrize("poison", ["nan", "keys", "steps"])
def test_replies_that_cannot_be_used_are_left_out(poison, tmp_path) -> None:
    _, unused = run_job(tmp_path / poison, "--rounds", 2, "--clients", 6, "--malicious", 1, "--poison", poison)
    assert unused == [{"site-1"}] * 2


def test_a_job_that_was_killed_goes_on_with_its_memory(tmp_path) -> None:
    state = tmp_path / "state"
    process = start_job(tmp_path / "first", "--rounds", 50, "--clients", 6, "--malicious", 0, "--state-dir", state)
    file = state / "flanders-nvflare.npz"
    end = time.monotonic() + 300
    while not (file.exists() and load_state(file).rounds >= 3):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)
    kill_job(tmp_path / "first", process)
    done = load_state(file).rounds
    options = ("--clients", 6, "--malicious", 2, "--state-dir", state, "--start-from", tmp_path / "first" / SAVED)
    accuracy, unused = run_job(tmp_path / "second", "--rounds", 3, *options)
    assert load_state(file).rounds == done + 3
    assert "continuing with the memory of" in (tmp_path / "second.log").read_text()
    assert unused == [{"site-1", "site-2"}] * 3
    assert accuracy > 0.5


def kill_job(workspace, process):
    """Kill a job with all its processes. NVFLARE's simulator starts some of them in sessions of their own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            belongs = str(workspace).encode() in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if belongs:
            os.kill(int(entry.name), signal.SIGKILL)
    process.wait()
