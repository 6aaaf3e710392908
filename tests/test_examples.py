from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from flanders.experiments.spec import read_specs

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


def test_the_python_example_of_the_experiments_guide_runs(capsys):
    page = (ROOT / "docs" / "experiments.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    *_, last = capsys.readouterr().out.splitlines()
    number, accuracy, kept = last.split()
    assert (int(number), int(kept)) == (10, 8)  # twelve of the twenty clients are malicious
    assert f"The accuracy ends at {float(accuracy):.2f}." in page
    assert float(accuracy) > 0.95


def test_the_quickstart_shows_who_is_dropped_and_what_it_saves():
    command = [sys.executable, str(EXAMPLES / "quickstart.py")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    *_, with_filter, without = lines[-1].split()
    assert "0, 1, 2" in lines[-1]
    assert float(with_filter) < 0.3 < 10 < float(without)


@pytest.mark.parametrize(
    ("name", "runs"), [("demo.toml", 4), ("mnist.toml", 1), ("tabular.toml", 4), ("text.toml", 4)]
)
def test_the_example_specs_are_understood(name, runs):
    assert len(read_specs([EXAMPLES / name], [])) == runs
