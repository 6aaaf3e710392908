"""A table of the final accuracies of a grid: a row per attack, a column per defence, means over seeds."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from flanders.checks import InputError
from flanders.report.tables import latex, markdown
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
    section_of,
)
from flanders.results.summary import RunSummary, read_summaries
from flanders.results.tree import Table

Cells = dict[tuple[str, ...], dict[str, list[float]]]
"""Row -> defence -> the accuracy of each seed."""
LEGEND = "Accuracy after the last round: mean over seeds [lowest, highest seed]; `-`: no run is done."


def crosstable(results: Path, format_: str) -> str:
    """Return the done runs of a results file as a table in Markdown, LaTeX or CSV."""
    done = [
        s for s in read_summaries(results) if s.status == "done" and s.final is not None and not is_live(s.spec)
    ]
    if not done:
        raise InputError(f"{results} has no run that is done. `flanders resume {results}` goes on with it.")
    flats = relative_counts([flat_spec(s.spec) for s in done])
    setting_keys = [k for k in varying(flats) if k not in (*ATTACK_KEYS, SEED) and section_of(k) not in DEFENCE]
    rows = [
        (*(_text(flat.get(key)) for key in setting_keys), attack_name(s.spec), f"{attack_fraction(s.spec):g}")
        for s, flat in zip(done, flats, strict=True)
    ]
    details = _defence_details(rows, flats)
    cells: Cells = defaultdict(lambda: defaultdict(list))
    for s, row, flat in zip(done, rows, flats, strict=True):
        cells[row][_defence(s, flat, details)].append(float(s.final or 0.0))
    header = [*setting_keys, "attack", "r"]
    if format_ == "csv":
        return _csv([*header, "defence", "accuracy", "low", "high", "seeds"], cells)
    defences = list(dict.fromkeys(name for found in cells.values() for name in found))
    body = [[*row, *(_cell(found.get(name, [])) for name in defences)] for row, found in cells.items()]
    return (markdown if format_ == "markdown" else latex)(results.name, [*header, *defences], body, LEGEND)


def _defence_details(rows: Sequence[tuple[str, ...]], flats: Sequence[Table]) -> list[str]:
    """Return the keys by which defences of the same names differ within a row and seed."""
    groups: dict[tuple[object, ...], list[Table]] = defaultdict(list)
    for row, flat in zip(rows, flats, strict=True):
        groups[row, flat[SEED]].append(flat)
    differ = dict.fromkeys(key for group in groups.values() for key in varying(group))
    return [key for key in differ if section_of(key) in DEFENCE and key not in DEFENCE_KEYS]


def _defence(s: RunSummary, flat: Mapping[str, object], keys: Sequence[str]) -> str:
    details = [f"{key}={flat[key]}" for key in keys if key in flat]
    return f"{filter_name(s.spec)} + {aggregator_name(s.spec)}" + (f" ({', '.join(details)})" if details else "")


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{spread}"


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _csv(header: Sequence[str], cells: Cells) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row, found in cells.items():
        for name, values in found.items():
            numbers = (fmean(values), min(values), max(values))
            writer.writerow([*row, name, *(f"{x:.4f}" for x in numbers), len(values)])
    return text.getvalue()
