"""A study from the command line to its table, its CSV file and its figure."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from flanders.cli import main
from flanders.report.run_reading import read_results
from flanders.results.summary import read_summaries
from flanders.studies.grid_studies import STUDIES
from flanders.studies.grids import runs_of
from flanders.studies.plots import density
from flanders.studies.rows import tabulate

TINY = ("--attacks", "gauss", "--rounds", "4", "--set", "federation.num_clients=8", "--set", "threat.fraction=0.5")


@pytest.fixture
def study(tmp_path, capsys):
    """Runs `flanders study` in an empty folder; returns exit code, output, errors."""

    def run(*arguments):
        code = main(["study", *arguments, "--out", str(tmp_path / "out"), "--device", "cpu"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_grid_study_leaves_a_table_a_csv_file_and_a_figure(study, tmp_path):
    code, out, err = study("refit", *TINY)
    assert code == 0
    lines = out.splitlines()
    assert lines[1] == "How often must the forecasting model be fitted?"
    assert lines[2].split()[:4] == ["attack", "r", "filter", "point"]
    assert "[9/9]" in err
    rows = rows_of(tmp_path / "out" / "refit.csv")
    assert [row["point"] for row in rows if row["filter"] == "flanders"] == ["1", "2", "3", "5", "10", "100"]
    assert {row["filter"] for row in rows if not row["point"]} == {"distance-to-global", "persistence", "keep-all"}
    assert all(float(row["recall"]) == 1 for row in rows if row["filter"] != "keep-all")
    assert (tmp_path / "out" / "refit.png").read_bytes()[:4] == b"\x89PNG"


def test_a_second_time_nothing_is_run_again_and_another_seed_only_adds(study, tmp_path):
    study("window", *TINY)
    before = (tmp_path / "out" / "window.csv").read_bytes()
    code, _, err = study("window", *TINY)
    assert code == 0
    assert "[" not in err
    assert (tmp_path / "out" / "window.csv").read_bytes() == before
    study("window", *TINY, "--seeds", "2")
    assert {row["seeds"] for row in rows_of(tmp_path / "out" / "window.csv")} == {"2"}


def test_rows_are_the_means_over_seeds_of_what_the_runs_came_to(study, tmp_path):
    study("alpha", *TINY, "--seeds", "2", "--set", "threat.start=1")
    results = tmp_path / "out" / "results.sqlite"
    changes = ["federation.rounds=4", "federation.num_clients=8", "threat.fraction=0.5", "threat.start=1"]
    runs = runs_of(STUDIES["alpha"], seeds=2, attacks=["gauss"], overrides=changes)
    rows = tabulate(results, STUDIES["alpha"], [run.id for run in runs])
    assert len(rows) == 5 * 4  # controls have a value of alpha, too
    row = next(row for row in rows if (row.filter, row.point) == ("distance-to-global", "0.5"))
    mine = [
        s
        for s in read_summaries(results)
        if s.spec["filter"]["name"] == row.filter and s.spec["data"]["partition"]["alpha"] == 0.5
    ]
    assert len(mine) == row.seeds == 2
    assert row.accuracy == pytest.approx(np.mean([s.final for s in mine]))
    assert (row.accuracy_low, row.accuracy_high) == tuple(sorted(s.final for s in mine))
    assert row.recall == pytest.approx(np.mean([s.recall for s in mine]))


def test_the_area_under_the_curve_counts_pairs_within_rounds(study, tmp_path):
    study("refit", *TINY)
    results = tmp_path / "out" / "results.sqlite"
    run = next(r for r in read_results(results) if r.spec["filter"]["name"] == "flanders")
    by_hand = [
        np.sign(run.score[bad, t] - run.score[good, t]) / 2 + 0.5
        for t in np.flatnonzero(run.rounds >= 3)
        for bad in np.flatnonzero(run.malicious[:, t])
        for good in np.flatnonzero(~run.malicious[:, t])
    ]
    assert len(by_hand) == 2 * 4 * 4
    (row,) = tabulate(results, STUDIES["refit"], [run.id])
    assert row.auc == pytest.approx(np.mean(by_hand))


def test_the_predictability_study_leaves_densities_of_models_and_displacements(study, tmp_path):
    tiny = ("--attacks", "gauss,lie", "--rounds", "5", "--set", "federation.num_clients=8")
    code, out, err = study("predictability", *tiny, "--format", "svg")
    assert code == 0
    assert err.splitlines()[-1] == "[2/2] lie, seed 0"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {"predictability-models.svg", "predictability-displacements.svg"}
    assert names == {"predictability.csv", "series", *figures}
    assert len(rows_of(tmp_path / "out" / "predictability.csv")) == 2 * 14
    assert "5.7e-38" in out


def test_a_density_has_its_peak_where_the_values_are_and_none_vanishes(rng):
    x, y = density(rng.normal(7, 0.2, size=49))
    assert abs(x[np.argmax(y)] - 7) < 0.2
    assert y.max() == 1
    x, y = density(np.full(49, 3.0))
    assert x[np.argmax(y)] == pytest.approx(3, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("window", "--dataset", "minst"), "Did you mean 'mnist'"),
        (("window", "--attacks", "gaus"), "Did you mean 'gauss'"),
        (("window", "--seeds", "0"), "at least 1"),
        (("predictability", "--jobs", "2"), "Leave out --jobs"),
    ],
)
def test_wrong_input_is_told_without_running_anything(study, tmp_path, arguments, words):
    code, _, err = study(*arguments)
    assert code == 2
    assert words in err
    assert not (tmp_path / "out").exists()
