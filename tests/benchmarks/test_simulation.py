from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "simulation.py"


def test_the_benchmark_reports_time_and_memory_of_a_thousand_clients(tmp_path):
    out = tmp_path / "figures.json"
    command = [
        sys.executable,
        str(BENCHMARK),
        "--only",
        "digits-1000-flanders",
        "--rounds",
        "2",
        "--json",
        str(out),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (row,) = json.loads(out.read_text())["rows"]
    assert "1,000 clients on digits" in shown
    assert row["rounds"] == 3
    assert row["seconds_a_round"] > 0
    assert 50 < row["peak_mb"] < 4000
    assert set(row["phases"]) == {"train", "attack", "filter", "aggregate", "evaluate"}
