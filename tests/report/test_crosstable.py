from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from scipy import stats

from flanders import InputError
from flanders.cli import main
from flanders.report.crosstable import METRICS, TableStyle, crosstable
from flanders.report.spread import student_quantile
from flanders.results.store import Store
from round_records import round_record

M = 8
ATTACKS = [(name, fraction) for name in ("gauss", "lie") for fraction in (0.25, 0.5)]
KEEP_ALL = {"name": "keep-all"}


def flanders(keep):
    return {"name": "flanders", "keep": keep}


@pytest.fixture
def grid(write, make_spec, tmp_path, rng):
    """Writes a run for each attack, filter and seed, and returns the file and the accuracies."""

    def make(filters, attacks=ATTACKS, path=tmp_path / "grid.sqlite", **changes):
        runs, accuracies = [], {}
        federation = {"num_clients": M, "clients_per_round": M, "rounds": 1}
        for name, fraction in attacks:
            threat = {"attack": name and {"name": name}, "fraction": fraction}
            for n, choose in enumerate(filters):
                for seed in (0, 1):
                    accuracy = round(rng.uniform(), 4)
                    parts = {"filter": choose(fraction), "federation": {**federation, "seed": seed}, **changes}
                    record = round_record(1, range(M), accuracy=accuracy, malicious=np.zeros(M, dtype=bool))
                    runs.append((make_spec(**threat, **parts), [record], "done"))
                    accuracies.setdefault((name, fraction, n), []).append(accuracy)
        return write(path, runs), accuracies

    return make


FILTERS = [lambda r: KEEP_ALL, lambda r: flanders(3), lambda r: flanders(M - int(np.ceil(r * M)))]


def lines(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def test_attacks_stand_by_defences_with_mean_and_range_over_seeds(grid, capsys):
    path, accuracies = grid(FILTERS)
    assert main(["table", str(path), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    header, _, *rows = lines(out)
    assert header == ["attack", "r", "keep-all", *(f"flanders (keep={keep})" for keep in ("3", "m-b"))]
    assert "Aggregator: fedavg." in out
    assert [row[:2] for row in rows] == [["gauss", "0.25"], ["gauss", "0.5"], ["lie", "0.25"], ["lie", "0.5"]]
    low, high = sorted(accuracies["gauss", 0.25, 0])
    assert rows[0][2] == f"{(low + high) / 2:.3f} [{low:.3f}, {high:.3f}]"


def test_the_same_table_comes_as_latex_and_csv(grid):
    path, _ = grid(FILTERS)
    assert r"\begin{tabular}{lllll}" in crosstable(path, "latex")
    found = list(csv.DictReader(io.StringIO(crosstable(path, "csv"))))
    assert len(found) == 4 * 3
    assert {row["seeds"] for row in found} == {"2"}
    assert all(float(row["low"]) <= float(row["accuracy"]) <= float(row["high"]) for row in found)


def test_a_number_that_does_not_follow_the_attackers_stays_a_number(grid):
    path, _ = grid([lambda r: flanders(6), lambda r: flanders(M - int(np.ceil(r * M)))], ATTACKS[1:2])
    header, *_ = lines(crosstable(path, "markdown"))
    assert header[2:] == [f"flanders (keep={keep})" for keep in (6, "m-b")]


def test_whatever_else_varies_stands_in_front_and_what_is_missing_is_a_dash(grid):
    data = {"dataset": {"name": "synthetic"}, "partition": {"name": "iid"}}
    grid(FILTERS[:1], [("lie", 0.25)], data=data)
    digits = {**data, "dataset": {"name": "digits"}}
    path, _ = grid([lambda r: {"name": "dnc"}], [(None, 0.0)], data=digits)
    header, _, first, second = lines(crosstable(path, "markdown"))
    assert header == ["dataset", "attack", "r", "keep-all", "dnc"]
    assert (*first[:3], first[4]) == ("synthetic", "lie", "0.25", "-")
    assert second[:4] == ["digits", "none", "0", "-"]


def test_without_a_run_that_is_done_there_is_no_table(tmp_path):
    path = tmp_path / "empty.sqlite"
    Store(path).close()
    with pytest.raises(InputError, match="has no run that is done"):
        crosstable(path, "markdown")


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_text_is_cut_into_tables_that_fit(grid, width):
    path, accuracies = grid(FILTERS)
    out = crosstable(path, "text", width=width)
    assert max(map(len, out.splitlines())) <= width
    assert sum(line.split()[:2] == ["gauss", "0.25"] for line in out.splitlines()) >= 80 // width
    for values in accuracies.values():
        assert f"{np.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]" in out


def test_runs_can_be_chosen_by_short_names_and_by_keys(grid):
    path, _ = grid(FILTERS[:1])
    for wheres in (["attack=lie", "r=0.5"], ["threat.attack.name=LIE", "fraction=.5"]):
        _, _, *rows = lines(crosstable(path, "markdown", wheres=wheres))
        assert [row[:2] for row in rows] == [["lie", "0.5"]]
    _, _, *rows = lines(crosstable(path, "markdown", wheres=["seed=1"]))
    assert "[" not in rows[0][2]  # one seed has no range


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("attack=fog", r"leaves no run. Values of attack in this file: gauss, lie\."),
        ("atack=lie", "knows no key 'atack'. Did you mean 'attack'"),
        ("attack", "needs KEY=VALUE"),
        ("name=lie", "could mean"),
    ],
)
def test_a_condition_that_cannot_be_met_is_told(grid, where, message):
    path, _ = grid(FILTERS[:1])
    with pytest.raises(InputError, match=message):
        crosstable(path, "text", wheres=[where])


def test_the_best_of_a_row_is_marked_in_every_format(grid):
    path, accuracies = grid(FILTERS)
    best = max(range(3), key=lambda n: np.mean(accuracies["gauss", 0.25, n]))
    style = TableStyle(spread="none", bold=True, caption="Attacks, 50%", label="tab:attacks")
    value = f"{np.mean(accuracies['gauss', 0.25, best]):.3f}"
    _, _, first, *_ = lines(crosstable(path, "markdown", style))
    assert first[2 + best] == f"**{value}**"
    assert sum(cell.startswith("**") for cell in first) == 1
    latex = crosstable(path, "latex", style)
    assert f"\\textbf{{{value}}}" in latex
    assert "\\caption{Attacks, 50\\%. Accuracy" in latex
    assert "\\label{tab:attacks}" in latex
    text = crosstable(path, "text", style)
    assert f"{value}*" in text
    assert text.startswith("Attacks, 50%\n")
    with pytest.raises(InputError, match="CSV has no caption"):
        crosstable(path, "csv", style)


def test_low_is_better_where_less_is_better(grid):
    path, _ = grid(FILTERS[:2])
    rows = lines(crosstable(path, "markdown", TableStyle("fpr", "none", bold=True)))[2:]
    assert rows[0][2:] == ["**0.000**", "**0.000**"]  # nobody was dropped: both are best
    assert not METRICS["seconds"].higher_is_better


def test_spreads_are_those_of_the_textbook(grid):
    path, accuracies = grid(FILTERS[:1])
    values = accuracies["gauss", 0.25, 0]
    interval = stats.t.interval(0.95, 1, loc=np.mean(values), scale=stats.sem(values))
    for spread, expected in (("std", np.std(values, ddof=1)), ("ci", (interval[1] - interval[0]) / 2)):
        found = list(csv.DictReader(io.StringIO(crosstable(path, "csv", TableStyle(spread=spread)))))
        assert float(found[0][spread]) == pytest.approx(expected, abs=1e-3)
    for freedom in (1, 2, 5, 30, 1000):
        assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-6)


def test_what_was_not_measured_is_told(grid):
    path, _ = grid(FILTERS[:1])
    with pytest.raises(InputError, match="has no value of attack-success for these runs"):
        crosstable(path, "text", TableStyle("attack-success"))


def test_a_finished_live_federation_has_a_table(tmp_path):
    pytest.importorskip("flwr", reason="Flower is not installed")
    from flower.test_results_recorder import accuracy, live

    path = tmp_path / "live.sqlite"
    live(path, evaluate_fn=accuracy)
    out = crosstable(path, "text")
    assert "unknown  -  0.500" in out
    assert "Aggregator: FedAvg." in out
