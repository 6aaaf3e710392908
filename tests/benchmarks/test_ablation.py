"""The ablation benchmark, at a tiny size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ablation.py"


def test_without_a_question_what_only_it_finds_passes():
    options = ["--attacks=mar", "--ratios=0.8", "--seeds=1", "--rounds=5", "--without", "novelty", "length"]
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    found = {question: float(recall) for question, _, recall, _, _ in rows}
    assert list(found) == ["nothing", "novelty", "length"]
    assert found["novelty"] < found["length"] == found["nothing"]
