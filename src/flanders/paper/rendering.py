"""Tables that compare our values with the values of the FLANDERS paper, as Markdown, LaTeX and CSV.

A cell is one number of a table of the paper.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from flanders.checks import InputError
from flanders.paper.comparison import Compared, Verdict, with_published
from flanders.paper.tables import KEYS, UNDEFINED, Cell, TableSpec, published
from flanders.report.tables import latex, markdown, markdown_lines

FORMATS = ("markdown", "latex", "csv")
COLUMNS = ("table", *KEYS, "value", "ours", "low", "high", "seeds")
MISSING = "missing"
LEGEND = (
    "Ours: mean over seeds [lowest value, highest value]; then the paper's value and our difference from it. "
    "`missing`: not run yet. `n/a`: the paper says that the aggregator cannot be applied."
)


def render(table: TableSpec, compared: Sequence[Compared], format_: str, variant: str) -> str:
    """Return a table in one of `FORMATS`. The title contains `variant`, a description of the runs."""
    if format_ == "csv":
        return as_csv(compared)
    header, rows = pivot(table, compared)
    seeds = sorted({c.seeds for c in compared if c.seeds})
    span = "no" if not seeds else str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    title = f"{table.title} ({table.label}; {variant}, {span} seed{'s' * (span != '1')})"
    return (markdown if format_ == "markdown" else latex)(title, header, rows, LEGEND)


def as_csv(compared: Sequence[Compared]) -> str:
    """Return a line for each cell, with the published value (`value`) and our value (`ours`)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for c in compared:
        value = published().get((c.cell.table, c.cell.key), UNDEFINED if c.cell.is_undefined else "")
        ours = ["" if x is None else f"{x:.4f}" for x in (c.ours, c.low, c.high)]
        writer.writerow([c.cell.table, *c.cell.key, value, *ours, c.seeds])
    return text.getvalue()


def read_csv(path: Path) -> dict[Cell, Compared]:
    """Return the cells of a file that `as_csv` wrote. Without a file, return an empty dict."""
    if not path.exists():
        return {}
    compared = {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise InputError(f"{path} was not written by `flanders reproduce`. Move it, or choose another folder.")
        for row in rows:
            dataset, attack, ratio, aggregator, filter_, metric = (row[key] for key in KEYS)
            cell = Cell(row["table"], dataset, attack, ratio, aggregator, filter_, metric)
            ours, low, high = (None if row[x] == "" else float(row[x]) for x in ("ours", "low", "high"))
            compared[cell] = with_published(cell, ours, low, high, int(row["seeds"]))
    return compared


def pivot(table: TableSpec, compared: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table.

    The first columns name the row. There is one for each of `KEYS` that has several values in the table, except for
    the key `table.columns`. The last columns hold the values of the cells. There is one for each value of the key
    `table.columns`, e.g. for each filter.
    """
    across = list(dict.fromkeys(getattr(c.cell, table.columns) for c in compared))
    varying = [key for key in KEYS if key != table.columns and len({getattr(c.cell, key) for c in compared}) > 1]
    cells: dict[tuple[str, ...], dict[str, Compared]] = {}
    for c in compared:
        row = tuple(getattr(c.cell, key) for key in varying)
        cells.setdefault(row, {})[getattr(c.cell, table.columns)] = c
    header = [*(key.replace("_", " ") for key in varying), *across]
    rows = [[*row, *(_cell(by_column.get(name)) for name in across)] for row, by_column in cells.items()]
    return header, rows


def verdict_text(verdicts: Sequence[Verdict], variant: str) -> str:
    """Return a page in Markdown that says which cells agree. `variant` is a description of the runs."""
    lines = [f"# Agreement with the published values ({variant})", ""]
    for v in verdicts:
        share = f" ({v.agreeing / v.compared:.1%})" if v.compared else ""
        missing = f"; {v.missing} published cells are missing here" if v.missing else ""
        lines.append(f"- {v.measure}: {v.agreeing} of {v.compared} cells agree{share}{missing}.")
    for v in verdicts:
        if not v.others:
            continue
        header = ["table", *KEYS, "ours", "paper", "re-run", "distance"]
        rows = [
            [c.cell.table, *c.cell.key, *(_two(x) for x in (c.ours, c.paper, c.rerun, c.distance))]
            for c in v.others
        ]
        lines += ["", f"## {v.measure}: cells that do not agree", "", *markdown_lines(header, rows)]
    return "\n".join(lines) + "\n"


def _cell(c: Compared | None) -> str:
    if c is None:
        return ""
    theirs = "" if c.paper is None else f"; {c.paper:.2f}"
    if c.cell.is_undefined:
        return "n/a"
    if c.ours is None:
        return f"{MISSING}{theirs}"
    spread = f" [{_two(c.low)}, {_two(c.high)}]" if c.seeds > 1 else ""
    return f"{_two(c.ours)}{spread}{theirs}" + ("" if c.difference is None else f" ({c.difference:+.2f})")


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
