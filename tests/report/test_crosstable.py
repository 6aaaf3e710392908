from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from flanders import InputError
from flanders.cli import main
from flanders.report.crosstable import crosstable
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
    assert main(["table", str(path)]) == 0
    header, _, *rows = lines(capsys.readouterr().out)
    names = [f"flanders + fedavg (filter.keep={keep})" for keep in ("3", "m-b")]
    assert header == ["attack", "r", "keep-all + fedavg", *names]
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
    assert header[2:] == [f"flanders + fedavg (filter.keep={keep})" for keep in (6, "m-b")]


def test_whatever_else_varies_stands_in_front_and_what_is_missing_is_a_dash(grid):
    data = {"dataset": {"name": "synthetic"}, "partition": {"name": "iid"}}
    grid(FILTERS[:1], [("lie", 0.25)], data=data)
    digits = {**data, "dataset": {"name": "digits"}}
    path, _ = grid([lambda r: {"name": "dnc"}], [(None, 0.0)], data=digits)
    header, _, first, second = lines(crosstable(path, "markdown"))
    assert header == ["data.dataset.name", "attack", "r", "keep-all + fedavg", "dnc + fedavg"]
    assert (*first[:3], first[4]) == ("synthetic", "lie", "0.25", "-")
    assert second[:4] == ["digits", "none", "0", "-"]


def test_without_a_run_that_is_done_there_is_no_table(tmp_path):
    path = tmp_path / "empty.sqlite"
    Store(path).close()
    with pytest.raises(InputError, match="has no run that is done"):
        crosstable(path, "markdown")
