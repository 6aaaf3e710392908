"""Results as text: rich tables in a terminal, plain columns in a pipe, JSON on request."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flanders.checks import InputError
from flanders.results.labels import differences
from flanders.results.schema import reading
from flanders.results.summary import Summary, attack_of, is_live, rule_of, summarise


def results(path: Path, *, as_json: bool = False) -> None:
    """Print one line for each run of a results file."""
    found = summarise(path)
    if as_json:
        print(json.dumps([dataclasses.asdict(summary) for summary in found], indent=2))
    else:
        closing_table(found)


def run(path: Path, beginning: str, *, as_json: bool = False) -> None:
    """Print what a run is and what each of its rounds came to."""
    found = [summary for summary in summarise(path) if summary.id.startswith(beginning)]
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs"
        raise InputError(
            f"{path} has {what} whose id begins with {beginning!r}. `flanders show {path}` lists them."
        )
    (summary,) = found
    rounds = _rounds(path, summary.id)
    if as_json:
        print(json.dumps({**dataclasses.asdict(summary), "rounds": rounds}, indent=2))
        return
    print(f"{summary.id}  {summary.status}, {summary.rounds} rounds, {summary.seconds:.1f} s")
    if summary.error:
        print(f"error: {summary.error}")
    if trace := _traceback(path, summary.id):
        print(trace)
    print(json.dumps(summary.spec, indent=2))
    keys = ["round", "accuracy", "loss", "attack_success", "kept", "unused", "caught", "missed", "note"]
    if summary.unusable and not is_live(summary.spec):  # whose notes tell what was refused, and why
        print(f"{summary.unusable} updates not finite")
        keys.insert(-1, "unusable")
    table([[_cell(row[key]) for key in keys] for row in rounds], keys)


def closing_table(found: Iterable[Summary]) -> None:
    """Print runs next to each other: what attacked, what defended, what came of it."""
    rows = []
    found = list(found)
    engines = any("engine" in s.spec for s in found)
    unusable = any(s.unusable for s in found)
    datasets = len({s.spec["data"]["dataset"]["name"] for s in found}) > 1
    for s, apart in zip(found, differences([s.spec for s in found]), strict=True):
        attack, fraction = attack_of(s.spec)
        federation = s.spec["federation"]
        rows.append(
            {
                "run": s.id[:8],
                **({"data": s.spec["data"]["dataset"]["name"]} if datasets else {}),
                "attack": attack,
                "r": "-" if is_live(s.spec) else f"{fraction:g}",
                "filter": s.spec["filter"]["name"],
                "aggregator": rule_of(s.spec),
                **({"engine": s.spec.get("engine", "simulator")} if engines else {}),
                **{key: "-" if value is None else str(value) for key, value in apart.items()},
                "seed": _cell(federation["seed"]),
                "status": s.status,
                "rounds": str(s.rounds) if is_live(s.spec) else f"{s.rounds}/{federation['rounds']}",
                "best": _cell(s.best),
                "final": _cell(s.final),
                "precision": _cell(s.precision),
                "recall": _cell(s.recall),
                **({"unusable": str(s.unusable)} if unusable else {}),
            }
        )
    if rows:
        table([list(row.values()) for row in rows], list(rows[0]))


def table(rows: Sequence[Sequence[str]], columns: Sequence[str], title: str = "") -> None:
    """Print a table on standard output, as wide as the terminal, or as its content where there is none."""
    if sys.stdout.isatty():
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table

        drawn = Table(*columns, title=title or None, box=SIMPLE, title_justify="left")
        for row in rows:
            drawn.add_row(*(cell.replace("[", "\\[") for cell in row))
        Console(width=_columns()).print(drawn)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    if title:
        print(f"\n{title}")
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _traceback(path: Path, id_: str) -> str:
    with reading(path) as connection:
        found = connection.execute("SELECT traceback FROM run WHERE id = ?", (id_,)).fetchone()
    return str(found[0] or "").rstrip()


def _rounds(path: Path, id_: str) -> list[dict[str, Any]]:
    with reading(path) as connection:
        cursor = connection.execute(
            "SELECT round.number AS round, accuracy, loss, attack_success, "
            "CAST(total(fate = 'kept') AS INTEGER) AS kept, "
            "CAST(total(fate != 'kept') AS INTEGER) AS unused, "
            "sum(malicious * (fate != 'kept')) AS caught, sum(malicious * (fate = 'kept')) AS missed, "
            "sum(fate IN ('refused', 'silent')) AS unusable, note "
            "FROM round LEFT JOIN client ON client.run = round.run AND client.round = round.number "
            "WHERE round.run = ? GROUP BY round.number ORDER BY round.number",
            (id_,),
        )
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def _columns() -> int:
    return max(60, shutil.get_terminal_size((116, 24)).columns)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
