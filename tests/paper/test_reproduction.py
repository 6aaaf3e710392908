from __future__ import annotations

import csv

import pytest

from flanders.checks import InputError
from flanders.cli import main
from flanders.paper.reproduction import Reproduction, parse_where
from flanders.results.store import Store

SMALL = [
    "--set", 'data={dataset="synthetic", partition="iid"}',
    "--set", 'model="logistic"',
    "--set", "federation.num_clients=10",
    "--set", "federation.rounds=4",
]  # fmt: skip
ASKED = ["tab:pr-20", "--dataset", "mnist", "--where", "attack=gauss", "--where", "filter=flanders,persistence"]


def test_what_is_missing_is_run_and_shown_beside_the_paper_and_not_run_again(tmp_path, capsys):
    results, tables = tmp_path / "r.sqlite", tmp_path / "tables"
    command = ["reproduce", *ASKED, *SMALL, "--seeds", "2", "--out", str(results)]
    assert main([*command, "--dry-run"]) == 0
    assert "4 of 4 runs are missing." in capsys.readouterr().out
    assert main([*command, "--device", "cpu", "--tables", str(tables)]) == 0
    out = capsys.readouterr().out
    assert "### Precision and recall" in out
    assert "federation.rounds=4, 2 seeds)" in out
    assert "| flanders | precision | 1.00 [1.00, 1.00]; 1.00 (+0.00) |" in out
    assert "precision and recall: 2 of 2 cells agree (100.0%)." in out
    assert main([*command, "--dry-run"]) == 0
    assert "0 of 4 runs are missing." in capsys.readouterr().out
    with open(tables / "reference.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["filter"], row["metric"]) for row in rows} == {
        (f, m) for f in ("flanders", "persistence") for m in ("precision", "recall")
    }
    assert {row["seeds"] for row in rows} == {"2"}
    assert "agree" in (tables / "reference-verdict.md").read_text()
    assert (tables / "reference-pr-20.tex").exists()
    assert main([*command, "--table-only", "--format", "csv"]) == 0
    assert capsys.readouterr().out == (tables / "reference.csv").read_text()


def test_a_folder_of_tables_is_filled_in_parts(tmp_path, capsys):
    def row(filter_, ours, seeds):
        return f"tab:pr-20,mnist,gauss,0.2,fedavg,{filter_},precision,,{ours},{ours},{ours},{seeds}\n"

    header = "table,dataset,attack,malicious_ratio,aggregator,filter,metric,value,ours,low,high,seeds\n"
    (tmp_path / "reference.csv").write_text(header + row("flanders", "0.5000", 3) + row("persistence", "", 0))
    nothing = ["--table-only", "--out", str(tmp_path / "none.sqlite"), "--tables", str(tmp_path)]
    assert main(["reproduce", "tab:pr-60", "--dataset", "mnist", *nothing]) == 0
    assert main(["reproduce", *ASKED, *nothing]) == 0
    with open(tmp_path / "reference.csv", newline="") as file:
        found = {(r["table"], r["filter"], r["attack"], r["metric"]): r for r in csv.DictReader(file)}
    assert found["tab:pr-20", "flanders", "gauss", "precision"]["ours"] == "0.5000"
    assert found["tab:pr-20", "flanders", "gauss", "precision"]["value"] == "1.0"
    assert found["tab:pr-20", "flanders", "gauss", "recall"]["seeds"] == "0"
    assert ("tab:pr-60", "flanders", "lie", "recall") in found
    assert "0.50 [0.50, 0.50]; 1.00" in (tmp_path / "reference-pr-20.md").read_text()
    assert "0 of 1 cells agree" in (tmp_path / "reference-verdict.md").read_text()
    before = (tmp_path / "reference.csv").read_text()
    assert main(["reproduce", *ASKED, *nothing, "--set", "data.dataset.verify=false"]) == 0
    assert (tmp_path / "reference.csv").read_text() == before
    capsys.readouterr()
    assert main(["reproduce", *ASKED, *nothing, "--set", "federation.rounds=3"]) == 2
    assert "has results of 1 other cells" in capsys.readouterr().err
    assert (tmp_path / "reference.csv").read_text() == before
    runs = tmp_path / "runs.sqlite"
    asked = ["reproduce", "tab:pr-60", *SMALL, "--out", str(runs), "--tables", str(tmp_path)]
    assert main(asked) == 2  # and before anything is run
    assert "has results of 1 other cells" in capsys.readouterr().err
    assert not runs.exists()
    (tmp_path / "reference.csv").write_text("something,else\n")
    assert main(["reproduce", *ASKED, *nothing]) == 2
    assert "was not written by `flanders reproduce`" in capsys.readouterr().err
    assert (tmp_path / "reference.csv").read_text() == "something,else\n"


def test_tables_can_be_shown_before_any_of_their_runs_is_done(tmp_path, capsys):
    results = tmp_path / "empty.sqlite"
    Store(results).close()
    assert main(["reproduce", *ASKED, "--table-only", "--out", str(results)]) == 0
    out = capsys.readouterr().out
    assert "missing; 1.00" in out
    assert "2 published cells are missing here" in out


def test_tables_say_what_was_changed(tmp_path, capsys):
    results, tables = tmp_path / "r.sqlite", tmp_path / "tables"
    Store(results).close()
    changes = ['model={name="logistic"}', "federation.rounds=4"]
    asked = [x for change in [*changes, "data.dataset.verify=false", "run.tf32=true"] for x in ("--set", change)]
    place = ["--out", str(results), "--tables", str(tables)]
    assert main(["reproduce", *ASKED, *asked, "--table-only", *place]) == 0
    words = f"reference variant with {', '.join(changes)}"
    out = capsys.readouterr().out
    assert f"; {words}, no seeds)" in out
    assert f"# Agreement with the published values ({words})" in out
    assert f"({words})" in (tables / "reference-verdict.md").read_text()
    assert r'model=\{name="logistic"\}' in (tables / "reference-pr-20.tex").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["tab:nothing"], "no table or figure 'tab:nothing'"),
        (["all", "--dataset", "mnst"], "Did you mean 'mnist'"),
        (["all", "--where", "attack"], "Got 'attack', which has no =value."),
        (["all", "--where", "atack=lie"], "Got 'atack=lie'. Did you mean 'attack'?"),
        (["all", "--table-only"], "There are no results at"),
        (["all", "--table-only", "--jobs", "0"], "--jobs must be at least 1"),
        (["all", "--dry-run", "--jobs", "0"], "--jobs must be at least 1"),
        (["all", "--where", "rule=krum"], "--where needs key=value"),
        (["all", "--seeds", "0"], "--seeds must be at least 1"),
        (["all", "--jobs", "0"], "--jobs must be at least 1"),
        (["quirks", "--variant", "textbook"], "no table"),
    ],
)
def test_wrong_arguments_are_told_in_one_line_and_leave_no_file(arguments, problem, tmp_path, capsys):
    results = tmp_path / "r.sqlite"
    assert main(["reproduce", *arguments, "--out", str(results)]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert len(err.splitlines()) == 1
    assert not results.exists()


def test_where_nothing_can_be_written_is_told_before_anything_is_run(tmp_path, capsys):
    results, file = tmp_path / "r.sqlite", tmp_path / "file"
    file.touch()
    assert main(["reproduce", *ASKED, *SMALL, "--out", str(results), "--tables", str(file)]) == 2
    assert f"{file} cannot be written: File exists. Choose another place." in capsys.readouterr().err
    assert main(["study", "window", "--out", str(file / "below")]) == 2
    assert "cannot be written: Not a directory" in capsys.readouterr().err
    assert not results.exists()


def test_tables_do_not_overwrite_results(tmp_path, capsys):
    results = tmp_path / "reference-pr-20.md"
    Store(results).close()
    before = results.read_bytes()
    asked = ["reproduce", *ASKED, "--table-only", "--out", str(results), "--tables", str(tmp_path)]
    assert main(asked) == 2
    assert "holds results, which would be overwritten" in capsys.readouterr().err
    assert results.read_bytes() == before


def test_cells_can_be_limited_by_any_of_their_names():
    where = parse_where(["aggregator=fedavg,multikrum", "filter=none", "malicious_ratio=0.8"])
    asked = Reproduction.of("all", "reference", 1, where)
    cells = [cell for table in asked.tables for cell in table.cells]
    assert cells
    assert {cell.aggregator for cell in cells} == {"fedavg", "multikrum"}
    assert {(cell.filter, cell.malicious_ratio) for cell in cells} == {("none", "0.8")}


def test_limits_that_leave_nothing_are_refused():
    with pytest.raises(InputError, match="No cell has all of the values"):
        Reproduction.of(
            "tab:pr-20,tab:increment-0", "reference", 1, parse_where(["attack=none", "filter=persistence"])
        )
