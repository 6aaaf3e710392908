"""The command `flanders study`: it carries out a study, prints a table, and writes a CSV file and figures."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from flanders.checks import InputError
from flanders.experiments.engine import Datasets
from flanders.experiments.execution import OptionChanges, Workforce, run_with_output_to_stderr
from flanders.experiments.experiment import Experiment
from flanders.files import check_target, write_atomically, writing
from flanders.report.plots import save
from flanders.report.text import print_table
from flanders.studies.grid_studies import PREDICTABILITY, find
from flanders.studies.grids import runs_of
from flanders.studies.plots import along_axis, densities
from flanders.studies.predictability import Finding, Series, attack_of, findings_of, measured, summarise
from flanders.studies.rows import Row, tabulate


def table_of_rows(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table of any study except the predictability study."""
    head = ["attack", "r", "filter", "point", "seeds", "accuracy", "precision", "recall", "AUC", "filter ms"]
    cells = [
        [
            row.attack,
            f"{row.fraction:g}",
            row.filter,
            row.point or "-",
            str(row.seeds),
            *(in_few_digits(x) for x in (row.accuracy, row.precision, row.recall, row.auc)),
            f"{row.filter_ms:.1f}",
        ]
        for row in rows
    ]
    return head, cells


def table_of_lines(lines: Sequence[Mapping[str, str | float | None]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the cells of the table of the predictability study."""
    cells = [[x if isinstance(x, str) else in_few_digits(x) for x in line.values()] for line in lines]
    return list(lines[0]), cells


def in_few_digits(value: float | None) -> str:
    """Return a number with few digits. None and NaN become a dash.

    Examples
    --------
    >>> in_few_digits(0.98765), in_few_digits(5.67e-38), in_few_digits(None), in_few_digits(12.0)
    ('0.988', '5.7e-38', '-', '12.000')
    """
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.1e}" if value != 0 and abs(value) < 1e-3 else f"{value:.3f}"


def write_csv(path: Path, rows: Sequence[Row] | Sequence[Finding]) -> None:
    """Write rows as a CSV file, with all digits."""
    if not rows:
        raise InputError("There is nothing to write: none of the study's runs is done.")
    with writing(path.parent, str(path)):
        check_target(path)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(rows[0])])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        write_atomically(path, text.getvalue())


HERE = Workforce()
"""One process on this machine."""


def conduct(
    name: str,
    out: Path,
    *,
    dataset: str,
    seeds: int,
    attacks: Sequence[str],
    overrides: Sequence[str],
    changes: OptionChanges,
    workforce: Workforce,
    format: str,
) -> int:
    """Carry out those runs of a study that are not done yet. Return the exit code of the command.

    Print the table of the study, and write the files of the study into the folder `out`.
    """
    study = find(name)
    runs = runs_of(study, dataset=dataset, seeds=seeds, attacks=attacks, overrides=overrides)
    if study is PREDICTABILITY and workforce != HERE:
        raise InputError("The predictability study carries out its runs one by one. Leave out --jobs and --on.")
    with writing(out):
        pass  # raises an error now, before the runs, if the folder cannot be written
    stem = out / (name if dataset == "digits" else f"{name}-{dataset}")
    if study is PREDICTABILITY:
        findings, series = _follow_clients(runs, out / "series", changes)
        write_csv(stem.with_suffix(".csv"), findings)
        for vectors in ("models", "displacements"):
            figure = densities(series, (vectors, "parameters", "gaussian-copula"))
            save(figure, stem.with_name(f"{stem.name}-{vectors}.{format}"))
        head, cells = table_of_lines(summarise(findings))
        code = 0
    else:
        results = out / "results.sqlite"
        code = run_with_output_to_stderr(results, runs, changes, workforce)
        rows = tabulate(results, study, [run.id for run in runs])
        write_csv(stem.with_suffix(".csv"), rows)
        save(along_axis(study, rows), stem.with_suffix(f".{format}"))
        head, cells = table_of_rows(rows)
    print_table(cells, head, study.question)
    print(f"Written: {stem.with_suffix('.csv')} and figures beside it.")
    return code


def _follow_clients(
    runs: Sequence[Experiment], folder: Path, changes: OptionChanges
) -> tuple[list[Finding], dict[str, Series]]:
    """Carry out all runs of the predictability study.

    Return the findings of all runs and, for each attack, the measured values (`Series`) of its first run.
    """
    datasets, findings, first = Datasets(), [], dict[str, Series]()
    for place, run in enumerate(runs, start=1):
        series = measured(run.with_options(**changes), folder, datasets)
        attack, seed = attack_of(run), run.setting.federation.seed
        print(f"[{place}/{len(runs)}] {attack}, seed {seed}", file=sys.stderr, flush=True)
        findings += findings_of(run, series)
        first.setdefault(attack, series)
    return findings, first
