"""A new field of the record needs one line: in a copy of the package with such a line, it is everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import flanders

SCRIPT = """
import base64, csv, sys
from pathlib import Path
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.report.payload import build_payload
from flanders.report.run_reading import read_results
from flanders.results.export import export_csv
from flanders.results.run import RunSpec
from flanders.results.store import Store

folder = Path(sys.argv[1])
spec = RunSpec({"data": {"dataset": {"name": "x"}}, "filter": {"name": "x"}, "aggregator": {"name": "x"},
                "federation": {"num_clients": 2, "seed": 0}})
clients = (ClientRecord(0, Fate.KEPT, latency=0.5), ClientRecord(1, Fate.SILENT))
with Store(folder / "r.sqlite") as store:
    ids = store.add([spec], {})
    store.claim(ids)
    store.write_round(ids[0], RoundRecord(1, clients), last=True)
with open(export_csv(folder / "r.sqlite", folder)[2], newline="") as file:
    assert [row["latency"] for row in csv.DictReader(file)] == ["0.5", ""]
runs = read_results(folder / "r.sqlite")
assert runs[0].numbers["latency"][0, 0] == 0.5
assert build_payload(runs)["runs"][0]["clients"]["fields"]["latency"]["kind"] == "number"
"""
BEFORE = "    malicious: bool | None = None\n"


def test_a_new_field_of_a_clients_record_reaches_the_file_the_export_and_the_page(tmp_path):
    package = tmp_path / "src" / "flanders"
    shutil.copytree(Path(flanders.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    record = package / "record.py"
    text = record.read_text(encoding="utf-8")
    assert text.count(BEFORE) == 1
    record.write_text(text.replace(BEFORE, f"    latency: float = math.nan\n{BEFORE}"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run([sys.executable, "-c", SCRIPT, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
