"""The benchmark of the wrapper, and the bounds on memory that it measures in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from peers import flower

flower("serverapp.strategy")
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "flower.py"
WHOLE, SKETCHED = "Flanders(keep=0.8, look=Sample(500))", "Flanders(keep=0.8), sketch=4096"
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="this system does not count memory as Linux does"
)


def measure(tmp_path, clients, parameters, *modes):
    """Return the largest memory of two rounds, in models."""
    sizes = ["--clients", str(clients), "--parameters", str(parameters), "--rounds", "2"]
    command = [sys.executable, str(SCRIPT), "--memory", *sizes, "--only", *modes, "--json", str(tmp_path / "rows")]
    subprocess.run(command, check=True, capture_output=True)
    return [row["models"] for row in json.loads((tmp_path / "rows").read_text())]


def check(whole, sketched, m):
    # The wrapper holds m rows and two vectors. Flower has the first and the last global model, FedAvg makes a
    # sum and an array of it; and a little room for what freed memory leaves in pieces.
    assert m < whole < m + 2 + 4 + 1.5
    # Flower's two, FedAvg's two, and one reply or layer in passing.
    assert 2 < sketched < 4 + 0.7


def test_memory_is_bounded_whole_and_sketched(tmp_path) -> None:
    bare, whole, sketched = measure(tmp_path, 10, 3_000_000, "FedAvg, bare", WHOLE, SKETCHED)
    check(whole, sketched, 10)
    assert whole < bare  # which keeps the replies of the last round while those of the next one come


@pytest.mark.slow
def test_ten_models_of_a_hundred_million_parameters_fit(tmp_path) -> None:
    check(*measure(tmp_path, 10, 100_000_000, WHOLE, SKETCHED), 10)


@pytest.mark.slow
def test_the_wrapper_takes_less_than_a_tenth_of_a_round_in_which_nobody_trains(tmp_path) -> None:
    command = [sys.executable, str(SCRIPT), "--rounds", "4", "--json", str(tmp_path / "rows")]
    subprocess.run(command, check=True, capture_output=True)
    rows = {row["what"]: row for row in json.loads((tmp_path / "rows").read_text())}
    assert rows["Flanders(keep=0.8)"]["share"] < 0.10
    assert rows[WHOLE]["share"] < 0.10
