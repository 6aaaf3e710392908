from __future__ import annotations

import csv
import io

import pytest

from flanders import InputError
from flanders.cli import main
from flanders.experiments.build import Datasets, versions
from flanders.experiments.runner import work
from flanders.experiments.spec import parse_spec
from flanders.report.crosstable import crosstable
from flanders.results.store import Store
from flanders.results.summary import attack_of, summarise

FEDERATION = {"clients": 8, "rounds": 2, "seed": [0, 1]}
GRID = {
    "data": {"dataset": "synthetic"},
    "federation": FEDERATION,
    "attack": {"name": ["gauss", "lie"], "fraction": [0.25, 0.5]},
    "filter": {"name": ["keep-all", {"name": "flanders", "keep": [3, "m-b"]}]},
}


@pytest.fixture
def run(fake, results):
    def carry_out(tree):
        with Store(results) as store:
            ids = store.add(parse_spec(tree), versions())
        work(results, ids, Datasets(), lambda event: None, lambda: False)
        return results

    return carry_out


def lines(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_attacks_stand_by_defences_with_mean_and_range_over_seeds(run, capsys):
    path = run(GRID)
    assert main(["table", str(path)]) == 0
    header, _, *rows = lines(capsys.readouterr().out)
    flanders = [f"flanders + fedavg (filter.keep={keep})" for keep in ("3", "m-b")]
    assert header == ["attack", "r", "keep-all + fedavg", *flanders]
    assert [row[:2] for row in rows] == [["gauss", "0.25"], ["gauss", "0.5"], ["lie", "0.25"], ["lie", "0.5"]]
    cell = ("gauss", 0.25, "keep-all")
    low, high = sorted(s.final for s in summarise(path) if (*attack_of(s.spec), s.spec["filter"]["name"]) == cell)
    assert rows[0][2] == f"{(low + high) / 2:.3f} [{low:.3f}, {high:.3f}]"


def test_the_same_table_comes_as_latex_and_csv(run):
    path = run(GRID)
    assert r"\begin{tabular}{lllll}" in crosstable(path, "latex")
    found = list(csv.DictReader(io.StringIO(crosstable(path, "csv"))))
    assert len(found) == 4 * 3
    assert {row["seeds"] for row in found} == {"2"}
    assert all(float(row["low"]) <= float(row["accuracy"]) <= float(row["high"]) for row in found)


def test_a_number_that_does_not_follow_the_attackers_stays_a_number(run):
    header, *_ = lines(crosstable(run({**GRID, "filter": {"name": "flanders", "keep": [6, "m-b"]}}), "markdown"))
    assert header[2:] == [f"flanders + fedavg (filter.keep={keep})" for keep in (6, "m-b")]


def test_whatever_else_varies_stands_in_front_and_what_is_missing_is_a_dash(run):
    run({**GRID, "attack": {"name": "lie", "fraction": 0.25}, "filter": "keep-all"})
    path = run({"data": {"dataset": "digits"}, "federation": FEDERATION, "filter": "dnc"})
    header, _, first, second = lines(crosstable(path, "markdown"))
    assert header == ["data.dataset.name", "attack", "r", "keep-all + fedavg", "dnc + fedavg"]
    assert (*first[:3], first[4]) == ("synthetic", "lie", "0.25", "-")
    assert second[:4] == ["digits", "none", "0", "-"]


def test_without_a_run_that_is_done_there_is_no_table(results):
    Store(results).close()
    with pytest.raises(InputError, match="has no run that is done"):
        crosstable(results, "markdown")
