from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from flanders.cli import main
from flanders.results.store import Store

SMALL = [
    "--set", 'data={dataset="synthetic", partition="iid"}',
    "--set", 'model="logistic"',
    "--set", "federation.num_clients=15",
    "--set", "federation.rounds=4",
    "--seeds", "2", "--device", "cpu",
]  # fmt: skip


def test_the_figures_that_have_runs_are_drawn_and_their_curves_written(tmp_path):
    asked = [
        "accuracy-over-time,tradeoff,increment-20",
        "--dataset",
        "mnist",
        "--where",
        "attack=none,gauss,agr-min-max",
    ]
    limits = ["--where", "aggregator=fedavg,bulyan", "--where", "metric=accuracy,seconds"]
    out = ["--out", str(tmp_path / "r.sqlite"), "--tables", str(tmp_path), "--figures", str(tmp_path)]
    assert main(["reproduce", *asked, *limits, *SMALL, *out]) == 0
    for name in ("accuracy-over-time", "tradeoff", "agreement"):
        ElementTree.parse(tmp_path / f"reference-{name}.svg")
    lines = (tmp_path / "reference-accuracy-over-time.csv").read_text().splitlines()
    assert lines[0] == "dataset,attack,malicious_ratio,aggregator,filter,round,ours,low,high,seeds"
    assert len(lines) == 1 + 4 * 6  # four rounds of two attacks and none, with and without the filter
    assert all(line.endswith(",2") for line in lines[1:])


def test_without_runs_no_figure_is_drawn(tmp_path):
    results, figures = tmp_path / "empty.sqlite", tmp_path / "figures"
    Store(results).close()
    code = main(["reproduce", "tradeoff", "--table-only", "--out", str(results), "--figures", str(figures)])
    assert code == 0
    assert list(figures.iterdir()) == []


def test_cells_that_the_folder_of_tables_has_are_drawn_too(tmp_path):
    header = "table,dataset,attack,malicious_ratio,aggregator,filter,metric,value,ours,low,high,seeds\n"
    cell = "tab:pr-20,mnist,gauss,0.2,fedavg,flanders,precision,,0.5000,0.5000,0.5000,1\n"
    (tmp_path / "reference.csv").write_text(header + cell)
    nothing = ["--table-only", "--out", str(tmp_path / "none")]
    assert main(["reproduce", "tab:pr-60", *nothing, "--tables", str(tmp_path), "--figures", str(tmp_path)]) == 0
    ElementTree.parse(tmp_path / "reference-agreement.svg")


def test_a_folder_that_cannot_be_made_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "figures")
    results = tmp_path / "empty.sqlite"
    Store(results).close()
    assert main(["reproduce", "tradeoff", "--table-only", "--out", str(results), "--figures", place]) == 2
    assert "cannot be written" in capsys.readouterr().err
