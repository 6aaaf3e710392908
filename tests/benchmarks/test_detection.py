"""The detection benchmark: its rows at a tiny size, and verdicts that can go either way."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import shutil
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flanders.experiments.engine import Datasets, start
from flanders.filters import Oracle
from flanders.models import Layout
from flanders.results.confusion import Confusion
from flanders.results.run import Options

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "detection.py"
COLUMNS = (
    "dataset,partition,attack,ratio,rotation,filter,seed,split,precision,recall,f1,fpr,accuracy,"
    "oracle_accuracy,plain_accuracy"
)


@pytest.fixture(scope="module")
def detection():
    spec = importlib.util.spec_from_file_location("detection_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def tiny(detection, tmp_path_factory):
    """Return a function that runs the benchmark on digits for four rounds, and its folder."""
    folder = tmp_path_factory.mktemp("detection")

    def run(*more):
        command = ["--datasets", "digits", "--attacks", "sign-flip", "--ratios", "0,0.2", "--rotation", "rotating"]
        command += ["--seeds", "20", "--rounds", "4", "--device", "cpu"]
        command += ["--out", str(folder / "runs.sqlite"), "--csv", str(folder / "rows.csv")]
        return detection.main([*command, *more])

    assert run() == 0
    return run, folder


def rows_of(path):
    assert path.read_text().splitlines()[0] == COLUMNS
    with path.open() as file:
        return {(row["attack"], row["filter"]): row for row in csv.DictReader(file)}


def test_every_filter_of_every_cell_has_a_row_beside_the_oracle_and_plain_fedavg(tiny):
    rows = rows_of(tiny[1] / "rows.csv")
    cells, filters = ("sign-flip", "none"), ("auto", "paper", "keep-all", "oracle")
    assert set(rows) == {(attack, name) for attack in cells for name in filters}
    for (attack, _), row in rows.items():
        assert row["split"] == "held-out"
        assert row["oracle_accuracy"] == rows[attack, "oracle"]["accuracy"]
        assert row["plain_accuracy"] == rows[attack, "keep-all"]["accuracy"]
    told, plain, honest = rows["sign-flip", "oracle"], rows["sign-flip", "keep-all"], rows["none", "oracle"]
    assert (told["precision"], told["recall"], told["f1"], told["fpr"]) == ("1.0", "1.0", "1.0", "0.0")
    assert (plain["precision"], plain["recall"], plain["f1"], plain["fpr"]) == ("", "0.0", "0.0", "0.0")
    assert (honest["recall"], honest["rotation"], honest["ratio"]) == ("", "none", "0.0")


def test_detection_is_counted_from_the_first_round_with_poison(tiny):
    # It drops b clients a round from the second on, and b are malicious from the third on.
    row = rows_of(tiny[1] / "rows.csv")["sign-flip", "paper"]
    assert row["precision"] == row["recall"]


def test_what_is_done_is_not_run_again(tiny, capsys):
    run, folder = tiny
    before = (folder / "rows.csv").read_bytes()
    assert run("--dry-run") == 0
    assert "digits: 7 runs, 7 of them done" in capsys.readouterr().out
    assert run("--dry-run", "--skip-known") == 0
    assert "0 runs for 0 rows" in capsys.readouterr().out
    assert run("--table-only", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["rows"]) == 8
    assert {verdict["status"] for verdict in shown["verdicts"]} <= {"met", "missed", "not shown"}
    assert (folder / "rows.csv").read_bytes() == before


def test_probabilities_are_held_against_the_truth(tiny, detection, capsys):
    run, folder = tiny
    assert run("--table-only") == 0
    assert "Probabilities of auto: Brier score 0." in capsys.readouterr().out
    cell = detection.Cell("digits", "dirichlet-0.5", "sign-flip", 0.2, "rotating")
    spec = detection.run_of(cell, "auto", 20, 4)
    copy = folder / "said.sqlite"
    shutil.copy(folder / "runs.sqlite", copy)
    with contextlib.closing(sqlite3.connect(copy)) as connection, connection:
        # everyone malicious with 0.75: a quarter is said too much of the malicious, three quarters of the others
        connection.execute("UPDATE client SET probability = 0.75")
    told = detection.calibration(copy, [spec])
    assert told == "Brier score 0.4625, expected calibration error 0.5500 (100 judgements)"
    assert detection.calibration(copy, []) == detection.calibration(folder / "none.sqlite", [spec]) == ""


def test_rows_of_other_runs_stay_in_the_file(tiny, detection, tmp_path):
    rows = detection.read_rows(tiny[1] / "rows.csv")
    old = replace(rows[0], dataset="mnist", accuracy=0.5)
    detection.write_rows(tmp_path / "rows.csv", [old, replace(rows[0], accuracy=0.0)])
    assert tiny[0]("--table-only", "--csv", str(tmp_path / "rows.csv")) == 0
    merged = {row.key: row for row in detection.read_rows(tmp_path / "rows.csv")}
    assert merged[old.key].accuracy == 0.5
    assert merged[rows[0].key] == rows[0]


def test_an_oracle_does_not_care_what_the_attackers_send(detection):
    cell = detection.Cell("digits", "dirichlet-0.5", "sign-flip", 0.2, "rotating")
    datasets = Datasets()

    def last_model(attack):
        run = detection.run_of(replace(cell, attack=attack), "keep-all", 0, 4)
        told = replace(run, setting=replace(run.setting, filter=Oracle(), run=Options(device="cpu")))
        simulation = start(told, datasets)
        for _ in simulation.run():
            pass
        return simulation.model.numpy().tobytes(), told.id

    shared, id_ = last_model("sign-flip")
    for attack in ("gauss", "sybils", "budget"):
        assert last_model(attack)[0] == shared
        assert detection.run_of(replace(cell, attack=attack), "oracle", 0, 4).id == id_
    assert detection.run_of(replace(cell, attack="on-off"), "oracle", 0, 4).id != id_


@pytest.mark.parametrize(
    ("dataset", "shape"),
    [("mnist", (1, 28, 28)), ("fashion-mnist", (1, 28, 28)), ("cifar10", (3, 32, 32)), ("digits", (1, 8, 8))],
)
def test_the_published_opt_knows_the_tensors_of_each_model(detection, dataset, shape):
    cell = detection.Cell(dataset, "dirichlet-0.5", "opt-reference", 0.2, "fixed")
    setting = detection.run_of(cell, "auto", 0, 4).setting
    model = setting.model.build(shape, 10)
    assert sum(setting.threat.attack.layer_sizes) == Layout.of(model).flatten(model).numel()


def test_every_point_of_the_grid_is_a_run(detection):
    options = detection.parse(["--datasets", "digits", "--partitions", "iid", "--ratios", "0,0.8"])
    found = list(detection.cells(options))
    assert len(found) == 1 + 2 * len(detection.ATTACKS_BY_NAME) - 1  # persistent ones do not rotate
    runs = [detection.run_of(cell, name, 0, 4) for cell in found for name in detection.FILTERS]
    assert all(run.setting.federation.num_clients == 50 for run in runs)
    assert {run.setting.threat.start for run in runs if run.setting.threat.exists} == {1, 3}


def test_a_wrong_name_is_refused_with_a_guess(detection, capsys):
    with pytest.raises(SystemExit) as refused:
        detection.main(["--attacks", "sign-flp"])
    assert refused.value.code == 2
    assert "Did you mean 'sign-flip'?" in capsys.readouterr().err


def test_a_short_run_does_not_get_into_the_long_ones_file(detection, capsys):
    assert detection.main(["--rounds", "4"]) == 2
    assert "Name another file with --csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dataset", "seed", "split"),
    [
        ("fashion-mnist", 0, "tuned"),
        ("digits", 19, "tuned"),
        ("fashion-mnist", 20, "held-out"),
        ("mnist", 0, "tuned"),
        ("cifar10", 3, "held-out"),
    ],
)
def test_held_out_are_late_seeds_and_other_data(detection, dataset, seed, split):
    cell = detection.Cell(dataset, "iid", "gauss", 0.2, "fixed")
    row = detection.row_of(cell, "auto", seed, detection.Outcome(Confusion(3, 1, 2, 14), 0.5, 0.1))
    assert row.split == split
    assert (row.precision, row.recall, row.f1, row.fpr) == (0.75, 0.6, 0.66667, 0.06667)


@pytest.fixture
def perfect(detection):
    """Return the rows and times of a filter that keeps all its promises."""
    cells = []
    for dataset in ("fashion-mnist", "mnist"):
        command = [
            "--datasets",
            dataset,
            "--attacks",
            ",".join((*detection.LOUD, *detection.QUIET, *detection.BLIND)),
        ]
        cells += detection.cells(detection.parse(command))
    rows = [
        detection.Row(
            cell.dataset, cell.partition, cell.attack, cell.ratio, cell.rotation, "auto", seed, "held-out",
            1.0, 1.0, 1.0, 0.0, 0.8, 0.8, 0.8 if cell.ratio == 0 else 0.5,
        )
        for cell in cells for seed in (20, 21, 22)
    ]  # fmt: skip
    times = {(row.cell, name, row.seed): 0.1 for row in rows for name in ("auto", "paper")}
    return rows, times


def spoil(rows, changes, **where):
    """Return the rows with changes in those that have these values."""
    hit = [all(getattr(row, key) == value for key, value in where.items()) for row in rows]
    assert any(hit)
    return [replace(row, **changes) if bad else row for row, bad in zip(rows, hit, strict=True)]


def test_all_is_met_where_all_is_well(detection, perfect):
    verdicts = detection.judge(*perfect)
    assert {verdict.status for verdict in verdicts} == {"met"}
    assert len(verdicts) == 17
    assert "1 recall at least 0.9 (fashion-mnist, rotating; opt, lie; r = 0.2)" in [v.promise for v in verdicts]


MISSES = [
    ("1 recall and", {"recall": 0.94}, {"attack": "gauss", "ratio": 0.8}),
    ("1 recall and", {"precision": 0.94}, {"attack": "lie-reference", "ratio": 0.2}),
    ("1 recall and", {"precision": None, "recall": 0.0}, {"attack": "sign-flip", "ratio": 0.6}),
    ("1 recall at", {"recall": 0.89}, {"attack": "lie", "ratio": 0.2}),
    ("2 no attack", {"fpr": 0.021}, {"ratio": 0.0}),
    ("2 no attack", {"accuracy": 0.794}, {"ratio": 0.0}),
    ("3 in no cell", {"plain_accuracy": 0.812, "oracle_accuracy": 0.8}, {"attack": "opt", "ratio": 0.6}),
    ("3 within", {"accuracy": 0.779}, {"attack": "opt", "ratio": 0.8}),
    ("4 within", {"accuracy": 0.779, "plain_accuracy": 0.785}, {"attack": "blind-spot", "ratio": 0.2}),
]


@pytest.mark.parametrize(("promise", "changes", "where"), MISSES)
def test_a_promise_that_is_broken_is_missed_and_no_other(detection, perfect, promise, changes, where):
    rows, times = perfect
    rotation = {} if where["ratio"] == 0 else {"rotation": "rotating"}
    verdicts = detection.judge(spoil(rows, changes, dataset="fashion-mnist", **rotation, **where), times)
    (missed,) = [verdict for verdict in verdicts if verdict.status == "missed"]
    assert missed.promise.startswith(promise)
    assert len(missed.misses) == 1
    assert where.get("attack", "no attack") in missed.misses[0]
    assert missed.misses[0] in str(missed)


@pytest.mark.parametrize(("dataset", "rotation"), [("mnist", "rotating"), ("fashion-mnist", "fixed")])
def test_the_promises_hold_for_other_data_and_for_fixed_attackers(detection, perfect, dataset, rotation):
    rows, times = perfect
    rows = spoil(rows, {"recall": 0.5}, dataset=dataset, rotation=rotation, attack="agr-min-max", ratio=0.6)
    (missed,) = [verdict for verdict in detection.judge(rows, times) if verdict.status == "missed"]
    assert missed.promise.startswith("5/1 recall and")
    assert f"({dataset}, {rotation}; " in missed.promise


def test_the_mean_over_seeds_decides(detection, perfect):
    rows, times = perfect
    where = {"dataset": "mnist", "attack": "gauss", "ratio": 0.2, "rotation": "fixed", "seed": 21}
    assert {v.status for v in detection.judge(spoil(rows, {"recall": 0.86}, **where), times)} == {"met"}
    assert "missed" in {v.status for v in detection.judge(spoil(rows, {"recall": 0.84}, **where), times)}


@pytest.mark.parametrize("changes", [{"split": "tuned"}, {"filter": "paper"}, {"oracle_accuracy": None}])
def test_what_was_not_measured_on_enough_held_out_seeds_is_not_met(detection, perfect, changes):
    rows, times = perfect
    where = {"dataset": "fashion-mnist", "attack": "gauss", "ratio": 0.2, "rotation": "rotating", "seed": 22}
    verdicts = detection.judge(spoil(rows, changes, **where), times)
    short = [verdict for verdict in verdicts if verdict.status == "not shown"]
    promise = "1 recall and precision at least 0.95 (fashion-mnist, rotating; gauss, sign-flip, lie-reference, "
    assert any(verdict.promise.startswith(promise) for verdict in short)
    assert all("2 of 3 seeds" in verdict.absent[0] for verdict in short)


def test_a_slow_filter_is_told_by_the_same_cells(detection, perfect):
    rows, times = perfect
    slow = {key: 0.21 if key[1] == "auto" and key[0].dataset == "mnist" else spent for key, spent in times.items()}
    (missed,) = [verdict for verdict in detection.judge(rows, slow) if verdict.status == "missed"]
    assert missed.misses == ("mnist: 2.10",)
    (unknown,) = [verdict for verdict in detection.judge(rows, {}) if verdict.status == "not shown"]
    assert unknown.promise.startswith("6")


def test_the_note_tells_what_sampling_filters_lose(detection, perfect):
    rows, times = perfect
    where = {"dataset": "fashion-mnist", "attack": "blind-spot", "rotation": "rotating"}
    sampled = [
        replace(row, filter="paper-sampled", accuracy=0.8 - row.ratio / 2)
        for row in rows if all(getattr(row, key) == value for key, value in where.items())
    ]  # fmt: skip
    told = [v.note for v in detection.judge([*rows, *sampled], times) if v.promise.startswith("4")]
    assert told == ["paper-sampled loses 0.10 to 0.40 to blind-spot"]
