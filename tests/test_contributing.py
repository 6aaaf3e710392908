from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_attack_of_the_contributing_guide_applies_as_a_diff_and_works(tmp_path):
    diff = re.search(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    code = (
        "import numpy as np; from flanders import ATTACKS, View\n"
        "rows = ATTACKS.make('free-rider', effort=0.5)(View(np.ones((2, 3)), np.zeros(3), num_clients=4))\n"
        "assert rows.tolist() == [[0.5] * 3] * 2"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path / "src")}, check=True)
