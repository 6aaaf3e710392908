"""What a study came to: a table, a CSV file and a figure."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from flanders.catalog import need
from flanders.checks import InputError
from flanders.experiments.build import Datasets
from flanders.experiments.commands import run_aside
from flanders.files import check_target, writing
from flanders.report.run_data import RunData, read_results
from flanders.report.text import print_table
from flanders.results.confusion import Confusion, area_under_curve
from flanders.results.run import RunSpec
from flanders.results.spec_keys import attack_fraction, attack_name, attack_start, dataset_name, filter_name
from flanders.studies.grids import CONTROLS, PREDICTABILITY, GridStudy, find, runs_of
from flanders.studies.predictability import Finding, Series, judge, measured, summarise


@dataclass(frozen=True)
class Row:
    """One point of a study under one attack: means over its seeds, and the lowest and highest of them.

    Detection counts from the first round with an attack on; precision and recall are of whom the filter dropped,
    the AUC is of its scores.
    """

    dataset: str
    attack: str
    fraction: float
    filter: str
    point: str
    seeds: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    precision: float
    recall: float
    recall_low: float
    recall_high: float
    auc: float
    auc_low: float
    auc_high: float
    filter_ms: float
    """Milliseconds that the filter took a round."""


def tabulate(results: Path, study: GridStudy, ids: Sequence[str]) -> list[Row]:
    """Return the rows of a study from these runs of a results file, in their order; only of what is done."""
    wanted = {id_: place for place, id_ in enumerate(ids)}
    groups: dict[tuple[str, str, float, str, str], list[RunData]] = {}
    for run in sorted(read_results(results), key=lambda run: wanted.get(run.id, 0)):
        if run.id in wanted and run.status == "done":
            attack, fraction = attack_name(run.spec), attack_fraction(run.spec)
            data, name = dataset_name(run.spec), filter_name(run.spec)
            point = study.point(run.spec)
            if name in CONTROLS and all(axis.startswith("filter.") for axis in study.axes):
                point = ""
            groups.setdefault((data, attack, fraction, name, point), []).append(run)
    return [_row(*key, runs) for key, runs in groups.items()]


def _row(dataset: str, attack: str, fraction: float, name: str, point: str, runs: Sequence[RunData]) -> Row:
    measured: dict[str, list[float]] = {"accuracy": [], "precision": [], "recall": [], "auc": [], "filter_ms": []}
    for run in runs:
        at = run.rounds >= attack_start(run.spec)
        seen = run.present & at
        found = Confusion.of(run.malicious[seen], run.kept[seen])
        measured["accuracy"].append(float(run.accuracy[-1]))
        measured["precision"].append(found.precision)
        measured["recall"].append(found.recall)
        measured["auc"].append(area_under_curve(zip(run.malicious[:, at].T, run.score[:, at].T, strict=True)))
        measured["filter_ms"].append(1000 * float(np.mean(run.seconds["filter"][at])))
    mean = {key: float(np.mean(values)) for key, values in measured.items()}
    spread = {
        f"{key}_{end}": float(of(measured[key]))
        for key in ("accuracy", "recall", "auc")
        for end, of in (("low", np.min), ("high", np.max))
    }
    return Row(dataset, attack, fraction, name, point, len(runs), **mean, **spread)


def shown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of a table for the terminal."""
    head = ["attack", "r", "filter", "point", "seeds", "accuracy", "precision", "recall", "AUC", "filter ms"]
    cells = [
        [
            row.attack,
            f"{row.fraction:g}",
            row.filter,
            row.point or "-",
            str(row.seeds),
            *(number(x) for x in (row.accuracy, row.precision, row.recall, row.auc)),
            f"{row.filter_ms:.1f}",
        ]
        for row in rows
    ]
    return head, cells


def shown_lines(lines: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the cells of the predictability study's summary."""
    return list(lines[0]), [[number(x) if not isinstance(x, str) else x for x in line.values()] for line in lines]


def number(value: float | None) -> str:
    """Return a number in few digits, and a dash for none.

    Examples
    --------
    >>> number(0.98765), number(5.67e-38), number(None), number(12.0)
    ('0.988', '5.7e-38', '-', '12.000')
    """
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.1e}" if value != 0 and abs(value) < 1e-3 else f"{value:.3f}"


def write_csv(path: Path, rows: Sequence[Row] | Sequence[Finding]) -> None:
    """Write rows of one kind as a CSV file, at full precision."""
    if not rows:
        raise InputError("There is nothing to write: none of the study's runs is done.")
    with writing(path.parent, str(path)):
        check_target(path)
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)


def conduct(
    name: str,
    out: Path,
    *,
    dataset: str,
    seeds: int,
    attacks: Sequence[str] = (),
    overrides: Sequence[str] = (),
    changes: dict[str, Any],
    jobs: int = 1,
    format: str = "png",
) -> int:
    """Carry out a study, resuming what is there, leave its table and figure in a folder, return the exit code."""
    plots, drawing = (
        need("flanders.report.plots"),
        need("flanders.report.study_plots"),
    )  # or say what is missing now
    study = find(name)
    data_dir = changes.get("data_dir")
    runs = runs_of(study, dataset=dataset, seeds=seeds, attacks=attacks, overrides=overrides, data_dir=data_dir)
    if study is PREDICTABILITY and jobs > 1:
        raise InputError("The predictability study runs one at a time. Leave out --jobs.")
    with writing(out):
        pass  # or say now that it cannot be written
    stem = out / (name if dataset == "digits" else f"{name}-{dataset}")
    if study is PREDICTABILITY:
        findings, series = _follow_clients(runs, out / "series", changes)
        write_csv(stem.with_suffix(".csv"), findings)
        for of in ("models", "displacements"):
            figure = drawing.densities(series, (of, "parameters", "gaussian-copula"))
            plots.save(figure, stem.with_name(f"{stem.name}-{of}.{format}"))
        head, cells = shown_lines(summarise(findings))
        code = 0
    else:
        results = out / "results.sqlite"
        code = run_aside(results, runs, changes, jobs)
        rows = tabulate(results, study, [run.id for run in runs])
        write_csv(stem.with_suffix(".csv"), rows)
        plots.save(drawing.along_axis(study, rows), stem.with_suffix(f".{format}"))
        head, cells = shown(rows)
    print_table(cells, head, study.question)
    print(f"Written: {stem.with_suffix('.csv')} and figures beside it.")
    return code


def _follow_clients(
    runs: Sequence[RunSpec], folder: Path, changes: dict[str, Any]
) -> tuple[list[Finding], dict[str, Series]]:
    """Measure all runs; return what they say, and the series of each attack with the first seed."""
    datasets, findings, first = Datasets(), [], dict[str, Series]()
    for place, run in enumerate(runs, start=1):
        series = measured(RunSpec(run.canonical, replace(run.options, **changes)), folder, datasets)
        attack, seed = run.canonical["attack"]["name"], run.canonical["federation"]["seed"]
        print(f"[{place}/{len(runs)}] {attack}, seed {seed}", file=sys.stderr, flush=True)
        findings += judge(run, series)
        first.setdefault(attack, series)
    return findings, first
