"""The benchmark of the default filter: its cells, and its rows at a tiny size."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "guard.py"


@pytest.fixture(scope="module")
def guard():
    spec = importlib.util.spec_from_file_location("guard_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_group_has_its_cells_and_their_specs_are_valid(guard):
    counts = {group: len(guard.runs_of([group], ["guard"], [40], 5)) for group in guard.GROUPS}
    assert counts["honest"] == 64 * 2  # the filter and plain averaging
    assert counts["first-round"] == len(guard.ATTACKS) * 3 * 3
    assert all(counts.values())


def test_only_cells_with_so_many_examples_can_be_asked_for(guard):
    every = guard.runs_of(["small"], ["guard"], [40], 5)
    some = guard.runs_of(["small"], ["guard"], [40], 5, examples=[100])
    assert {row.examples for _, row in some.values()} == {100}
    assert 2 * len(some) == len(every)


def test_a_small_group_is_run_written_and_read_again(guard, tmp_path, monkeypatch, capsys):
    cells = [(cell, spec) for cell, spec in guard.small() if cell.fraction][:1]
    monkeypatch.setitem(guard.GROUPS, "small", lambda: iter(cells))
    out, table = tmp_path / "guard.sqlite", tmp_path / "guard.csv"
    arguments = ["--groups", "small", "--seeds", "1", "--rounds", "3", "--device", "cpu", "--csv", str(table)]
    assert guard.main([*arguments, "--out", str(out)]) == 0
    rows = {row.filter: row for row in guard.read_rows(table)}
    assert set(rows) == {"guard", "keep-all", "oracle"}
    assert rows["oracle"].recall == 1.0
    assert rows["keep-all"].recall == 0.0
    assert 0 < rows["guard"].accuracy < 1
    assert "sign-flip" in capsys.readouterr().out
    assert guard.main([*arguments, "--table-only"]) == 0


def test_a_file_of_something_else_is_refused(guard, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert guard.main(["--table-only", "--csv", str(tmp_path / "other.csv")]) == 2
    assert "was not written by this benchmark" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--groups", "smal"], ["--seeds", "x"]])
def test_wrong_arguments_end_with_code_two(guard, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        guard.main(arguments)
