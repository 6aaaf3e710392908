"""The benchmark runs at a tiny size and says what it promises; its numbers mean nothing here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "core.py"


def run(*arguments: str) -> str:
    command = [sys.executable, str(SCRIPT), "--clients", "20", "--parameters", "300", "--repeats", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_benchmark_writes_a_row_for_each_name_it_is_asked_for(tmp_path):
    chosen = ["fedavg", "median", "dnc", "flanders step, all parameters"]
    printed = run("--json", str(tmp_path / "rows.json"), "--only", *chosen)
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [row["name"] for row in rows] == chosen
    for row in rows:
        assert {"ours", "peer", "ratio", "extra_memory", "peer_name", "target", "met", "unit"} <= row.keys()
        assert row["ours"] >= 0
        assert row["name"] in printed
    step = rows[-1]
    assert step["peer_name"] == "its Gram product"
    assert step["ratio_is"] == "ours / peer"
    assert step["met"] == (step["ratio"] <= 2)


def test_an_aggregator_that_nobody_else_has_is_measured_alone(tmp_path):
    run("--json", str(tmp_path / "rows.json"), "--only", "dnc")
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["peer_name"] == "no peer here"
    assert row["peer"] is None
    assert row["ratio"] is None
    assert row["met"] is None


def test_an_unknown_row_is_refused():
    with pytest.raises(subprocess.CalledProcessError):
        run("--only", "mediam")
