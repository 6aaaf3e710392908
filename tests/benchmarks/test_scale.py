"""The benchmark of scale, at a tiny size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("scale_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_part_is_measured_written_and_drawn(scale, tmp_path, capsys):
    table, figure = tmp_path / "scale.csv", tmp_path / "scale.svg"
    assert scale.main(["--small", "--csv", str(table), "--figure", str(figure)]) == 0
    rows = scale.read_rows(table)
    assert {row.part for row in rows} == set(scale.PARTS)
    assert "<svg" in figure.read_text()
    (few, many) = (row for row in rows if row.part == "devices")
    assert few.known > many.known  # the more clients there are, the fewer are seen again
    assert scale.main(["--small", "--parts", "parameters", "--csv", str(table)]) == 0
    assert len(scale.read_rows(table)) == len(rows)  # rows that are measured again are replaced


def test_the_committed_figures_hold_what_the_guide_says(scale):
    rows = [row for row in scale.read_rows(FILE.parents[1] / "results" / "scale.csv") if row.part == "ids"]
    for m in (100, 1000):
        some = [row for row in rows if row.clients == m]
        assert len(some) >= 5
        assert some[-1].remembered < 1.01 * some[2].remembered  # memory stops growing
        assert some[-1].seconds < 1.5 * some[2].seconds  # and so does time
