"""Makes a table of the runs in a results file: a row for each attack, and a column for each defence.

The numbers are means over seeds.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from flanders.checks import InputError
from flanders.report.spread import CI, RANGE, SPREAD_WORDS, STD, half_width, spread_text
from flanders.report.tables import latex, markdown, text_table
from flanders.report.where import selected
from flanders.results.labels import relative_counts, varying
from flanders.results.spec_keys import (
    ATTACK_KEYS,
    DEFENCE,
    DEFENCE_KEYS,
    SEED,
    aggregator_name,
    attack_fraction,
    attack_name,
    filter_name,
    flat_spec,
    is_live,
    last_part,
    section_of,
)
from flanders.results.summary import RunSummary, read_summaries
from flanders.results.tree import Table

Cells = dict[tuple[str, ...], dict[str, list[float]]]
"""For each row of the table and each defence, the values of all seeds.

The key of a row is a tuple of the texts in its first columns. These texts describe the row."""


@dataclass(frozen=True)
class Metric:
    """A measure of a run that a table can show."""

    field: str
    """The field of `RunSummary` with the measure."""
    words: str
    """The measure in words, for the legend."""
    higher_is_better: bool = True
    digits: int = 3


METRICS = {
    "accuracy": Metric("final", "Accuracy after the last round"),
    "best": Metric("best", "Best accuracy of any round"),
    "precision": Metric("precision", "Precision (of the clients not kept, the share that was malicious)"),
    "recall": Metric("recall", "Recall (of the malicious clients, the share that was not kept)"),
    "fpr": Metric("false_positive_rate", "False-positive rate (of the honest clients, the share not kept)", False),
    "attack-success": Metric("attack_success", "Attack success after the last round", False),
    "source-accuracy": Metric("source_accuracy", "Accuracy on the examples that the attack aims at"),
    "seconds": Metric("seconds", "Seconds of all rounds", False, 1),
}
"""The measures that the option `--metric` accepts."""


@dataclass(frozen=True)
class TableStyle:
    """The measure that a table shows, and the style of the table.

    Parameters
    ----------
    metric
        The name of the measure: a key of `METRICS`.
    spread
        How to show the differences between seeds: `range`, `std`, `ci` or `none`; see `flanders.report.spread`.
    bold
        Whether to mark the best value of each row.
    caption, label
        The caption of the table, and its label in LaTeX.
    """

    metric: str = "accuracy"
    spread: str = RANGE
    bold: bool = False
    caption: str = ""
    label: str = ""


def crosstable(
    results: Path, format_: str, style: TableStyle | None = None, wheres: Sequence[str] = (), width: int = 80
) -> str:
    """Return a table of all runs of a results file that are done.

    `format_` is `text`, `markdown`, `latex` or `csv`. `wheres` are conditions on the runs; see
    `flanders.report.where`. With `text`, lines have at most `width` characters, unless a single column needs more.
    """
    style = style or TableStyle()
    metric = METRICS[style.metric]
    if format_ == "csv" and (style.caption or style.label or style.bold):
        raise InputError("A table in CSV has no caption, no label and no bold values. Omit these options.")
    done = [s for s in read_summaries(results) if s.status == "done"]
    if not done:
        raise InputError(f"{results} has no run that is done. `flanders resume {results}` continues its runs.")
    done = [done[i] for i in selected([s.spec for s in done], wheres)]
    done = [s for s in done if getattr(s, metric.field) is not None]
    if not done:
        raise InputError(
            f"{results} has no value of {style.metric} for these runs: it was not measured. "
            f"Choose another --metric: {', '.join(METRICS)}."
        )
    header, cells = _cells(done, metric)
    if format_ == "csv":
        return _csv(
            [*header, "defence", style.metric, *_spread_columns(style.spread), "seeds"], cells, style.spread
        )
    defences = list(dict.fromkeys(name for by_defence in cells.values() for name in by_defence))
    body = [
        [*row, *(_cell(by_defence.get(name, []), style.spread, metric.digits) for name in defences)]
        for row, by_defence in cells.items()
    ]
    best = _best(cells, defences, metric, len(header)) if style.bold else set()
    shown, shared = _without_shared_aggregator(defences)
    several = any(len(values) > 1 for by_defence in cells.values() for values in by_defence.values())
    legend = f"{metric.words}{f': {SPREAD_WORDS[style.spread]}' if several else ''}.{shared}"
    if any("-" in row[len(header) :] for row in body):
        legend += " `-`: no run is done, or nothing was measured."
    title, columns = style.caption or results.name, [*map(_heading, header), *shown]
    if format_ == "latex":
        return latex(title, columns, body, legend, label=style.label, bold=best)
    if format_ == "text":
        return text_table(style.caption, columns, body, legend, len(header), width, best)
    return markdown(title, columns, body, legend, bold=best)


@dataclass(frozen=True)
class Grid:
    """The mean accuracy after the last round, for each attack and defence."""

    rows: list[str]
    """The name of each row: first the values in which runs differ, then the attack."""
    columns: list[str]
    """The name of the defence of each column."""
    means: list[list[float]]
    """The means over seeds, as a list of rows. A mean is NaN if no run with this attack and defence is done."""


def grid_means(results: Path, wheres: Sequence[str]) -> Grid | None:
    """Return the mean accuracies over the seeds, from all runs that are done and fulfil the conditions `wheres`.

    Return None if there is no such run with an accuracy.
    """
    done = [s for s in read_summaries(results) if s.status == "done"]
    done = [done[i] for i in selected([s.spec for s in done], wheres)] if done else []
    done = [s for s in done if s.final is not None]
    if not done:
        return None
    header, cells = _cells(done, METRICS["accuracy"])
    defences = list(dict.fromkeys(name for by_defence in cells.values() for name in by_defence))
    names = [" ".join(_worded(key, value) for key, value in zip(header, row[:-2], strict=False)) for row in cells]
    attacks = ["no attack" if row[-2] == "none" else f"{row[-2]} {row[-1]}" for row in cells]
    means = [[fmean(row[name]) if name in row else math.nan for name in defences] for row in cells.values()]
    rows = [f"{name} {attack}".strip() for name, attack in zip(names, attacks, strict=True)]
    columns = ["no filter" if name == "keep-all" else name for name in _without_shared_aggregator(defences)[0]]
    return Grid(rows, columns, means)


def _cells(done: Sequence[RunSummary], metric: Metric) -> tuple[list[str], Cells]:
    """Return the keys of the columns that describe a row, and the values for each row and defence.

    The columns that describe a row are the values in which runs differ, the attack, and `r`, the share of malicious
    clients.
    """
    flats = relative_counts([flat_spec(s.spec) for s in done])
    not_settings = (*ATTACK_KEYS, SEED, "live")
    setting_keys = [k for k in varying(flats) if k not in not_settings and section_of(k) not in DEFENCE]
    rows = [
        (*(_text(flat.get(key)) for key in setting_keys), attack_name(s.spec), _fraction(s))
        for s, flat in zip(done, flats, strict=True)
    ]
    details = _defence_details(rows, flats)
    cells: Cells = defaultdict(lambda: defaultdict(list))
    for s, row, flat in zip(done, rows, flats, strict=True):
        cells[row][_defence(s, flat, details)].append(float(getattr(s, metric.field)))
    return [*setting_keys, "attack", "r"], cells


def _fraction(s: RunSummary) -> str:
    return "-" if is_live(s.spec) else f"{attack_fraction(s.spec):g}"


def _heading(key: str) -> str:
    """Return a key of a spec as the heading of a column.

    Examples
    --------
    >>> _heading("data.dataset.name"), _heading("data.partition.alpha")
    ('dataset', 'alpha')
    """
    parts = key.split(".")
    return parts[-2] if parts[-1] == "name" and len(parts) > 1 else parts[-1]


def _worded(key: str, value: str) -> str:
    """Return a key of a spec and its value as text to put before an attack, e.g. `mnist,` or `alpha 0.5,`."""
    return f"{value}," if last_part(key) == "name" else f"{_heading(key)} {value},"


def _without_shared_aggregator(defences: Sequence[str]) -> tuple[list[str], str]:
    """Remove the aggregator from the names of defences if all defences have the same aggregator.

    The names are those of `_defence`. Return the new names, and a sentence that names the removed aggregator.
    """
    pairs = [name.partition(" + ") for name in defences]
    aggregators = {pair[2].partition(" (")[0] for pair in pairs}
    if len(aggregators) > 1 or "" in aggregators:
        return list(defences), ""
    (shared,) = aggregators
    return [name.replace(f" + {shared}", "", 1) for name in defences], f" Aggregator: {shared}."


def _defence_details(rows: Sequence[tuple[str, ...]], flats: Sequence[Table]) -> list[str]:
    """Return the parameters of the defence, as keys, in which runs of the same row and seed differ."""
    groups: dict[tuple[object, ...], list[Table]] = defaultdict(list)
    for row, flat in zip(rows, flats, strict=True):
        groups[row, flat.get(SEED)].append(flat)
    differ = dict.fromkeys(key for group in groups.values() for key in varying(group))
    return [key for key in differ if section_of(key) in DEFENCE and key not in DEFENCE_KEYS]


def _defence(s: RunSummary, flat: Mapping[str, object], keys: Sequence[str]) -> str:
    """Return the name of a run's defence, e.g. `guard + fedavg`, with the values of `keys` in brackets."""
    details = [f"{key.removeprefix('filter.')}={flat[key]}" for key in keys if key in flat]
    return f"{filter_name(s.spec)} + {aggregator_name(s.spec)}" + (f" ({', '.join(details)})" if details else "")


def _cell(values: Sequence[float], spread: str, digits: int) -> str:
    return spread_text(values, spread, digits) if values else "-"


def _best(cells: Cells, defences: Sequence[str], metric: Metric, first: int) -> set[tuple[int, int]]:
    """Return the positions of the cells with the best value of their row. Values are compared after rounding."""
    best = set()
    for i, by_defence in enumerate(cells.values()):
        means = {name: round(fmean(values), metric.digits) for name, values in by_defence.items()}
        wanted = (max if metric.higher_is_better else min)(means.values())
        best |= {(i, first + j) for j, name in enumerate(defences) if means.get(name) == wanted}
    return best


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _spread_columns(spread: str) -> list[str]:
    return ["low", "high"] if spread == RANGE else [spread] if spread in (STD, CI) else []


def _csv(header: Sequence[str], cells: Cells, spread: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row, by_defence in cells.items():
        for name, values in by_defence.items():
            numbers = [f"{fmean(values):.4f}"]
            if spread == RANGE:
                numbers += [f"{min(values):.4f}", f"{max(values):.4f}"]
            elif spread in (STD, CI):
                numbers.append(f"{half_width(values, spread):.4f}" if len(values) > 1 else "")
            writer.writerow([*row, name, *numbers, len(values)])
    return text.getvalue()
