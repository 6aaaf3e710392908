"""The ablation benchmark, at a tiny size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ablation.py"


def ablation(*options):
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=600)


def recalls(*options):
    done = ablation("--seeds=1", *options)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    return {part: float(recall) for part, _, recall, _, _ in rows}


def test_without_a_question_of_fingerprint_what_only_it_finds_passes():
    options = ["--filter=fingerprint", "--attacks=mar", "--ratios=0.8", "--threats=third", "--rounds=5"]
    found = recalls(*options, "--without", "novelty", "length")
    assert list(found) == ["nothing", "novelty", "length"]
    assert found["novelty"] < found["length"] == found["nothing"]


def test_without_a_part_of_guard_what_only_it_finds_passes():
    options = ["--attacks=lie", "--ratios=0.6", "--threats=first", "--rounds=2", "--clients=20"]
    found = recalls(*options, "--without", "copies", "opposing", "length", "long updates", "novelty")
    assert found.pop("copies") < found["nothing"]
    assert set(found.values()) == {found["nothing"]}


def test_a_part_that_the_filter_does_not_have_is_named():
    done = ablation("--without", "company")
    assert done.returncode == 2
    assert "guard has no such part. It has nothing, fingerprint, novelty" in done.stderr
