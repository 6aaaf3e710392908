"""No connection is opened unless somebody asks for one: everything runs with all sockets closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"):
        if event == "socket.getaddrinfo" or isinstance(arguments[-1], tuple):  # other addresses are of this machine
            raise RuntimeError(f"asked for the network: {event} {arguments[1:]}")

sys.addaudithook(refuse)
"""
ARRAYS = """
import numpy as np
from flanders import Defense
defense = Defense()
for _ in range(3):
    defense(np.random.default_rng(0).normal(size=(6, 20)))
defense.save("state.npz")
defense.load("state.npz")
"""
COMMANDS = """
from flanders.cli import main
spec = '[data]\\ndataset = "digits"\\n[federation]\\nnum_clients = 4\\nrounds = 2\\n'
open("spec.toml", "w").write(spec)
for arguments in (
    ["run", "spec.toml"],
    ["show", "results.sqlite"],
    ["table", "results.sqlite"],
    ["report", "results.sqlite"],
    ["export", "results.sqlite", "--csv", "csv"],
    ["list"],
    ["schema"],
):
    assert main(arguments) == 0, arguments
"""
FLOWER = """
import sys
sys.path.insert(0, {tests!r})
from flower.federation import grid_of, model, strategies
from flanders.cli import main
from flanders.flower import Ban, FilteredStrategy
strategy = FilteredStrategy(
    strategies.FedAvg(), state_dir="state", results="live.sqlite", audit="audit.jsonl", ban=Ban(), seed=0
)
strategy.start(grid_of(6), model((6, 7)), num_rounds=3)
assert main(["audit", "verify", "audit.jsonl", "--state", "state"]) == 0
"""


def run_closed(code, folder):
    """Run code with closed sockets in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CLOSED + code], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "code",
    [ARRAYS, COMMANDS, FLOWER.format(tests=str(Path(__file__).parent))],
    ids=["arrays", "commands", "flower"],
)
def test_nothing_asks_for_the_network(code, tmp_path):
    code, error = run_closed(code, tmp_path)
    assert code == 0, error


def test_the_closed_sockets_are_closed(tmp_path):
    code, error = run_closed("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", tmp_path)
    assert code != 0
    assert "asked for the network" in error
