"""Prints results as tables or as JSON, for example for `flanders show`.

In a terminal, the package `rich` draws the tables if it is installed. Otherwise the tables are plain text.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from flanders.checks import InputError
from flanders.record import Fate
from flanders.report.run_details import ClientDetails, RoundDetails, read_run_details
from flanders.results.labels import differences
from flanders.results.spec_keys import (
    aggregator_name,
    attack_fraction,
    attack_name,
    dataset_name,
    engine,
    filter_name,
    is_live,
    num_rounds,
    seed,
)
from flanders.results.summary import RunSummary, read_summaries

CLIENTS_SHOWN = 20
"""The most clients in the table of clients that were not kept. About this many lines fit on a screen."""


def print_results(path: Path, *, as_json: bool = False) -> None:
    """Print one line for each run of a results file."""
    summaries = read_summaries(path)
    if as_json:
        print(json.dumps([dataclasses.asdict(summary) for summary in summaries], indent=2))
    else:
        print_summaries(summaries)


def print_run(path: Path, beginning: str, *, as_json: bool = False) -> None:
    """Print the run whose id begins with `beginning`: its spec, its rounds, and the clients that were not kept."""
    matching = [summary for summary in read_summaries(path) if summary.id.startswith(beginning)]
    if len(matching) != 1:
        what = f"{len(matching)} runs" if matching else "no run"
        raise InputError(
            f"{path} has {what} whose id begins with {beginning!r}. `flanders show {path}` lists all runs."
        )
    (summary,) = matching
    details = read_run_details(path, summary.id)
    if as_json:
        rounds = [row.as_json() for row in details.rounds]
        clients = [dataclasses.asdict(row) for row in details.clients]
        print(json.dumps({**dataclasses.asdict(summary), "rounds": rounds, "not_kept": clients}, indent=2))
        return
    print(f"{summary.id}  {summary.status}, {summary.rounds} rounds, {summary.seconds:.1f} s")
    if summary.error:
        print(f"error: {summary.error}")
    if details.traceback:
        print(details.traceback)
    print(json.dumps(summary.spec, indent=2))
    _print_rounds(details.rounds)
    if details.clients:
        _print_not_kept(details.clients, path)


def print_summaries(found: Sequence[RunSummary]) -> None:
    """Print a table of runs with their attacks, defences and results."""
    rows = []
    engines = any("engine" in s.spec for s in found)
    unusable = any(s.unusable for s in found)
    datasets = len({dataset_name(s.spec) for s in found}) > 1
    for s, distinguishing in zip(found, differences([s.spec for s in found]), strict=True):
        live = is_live(s.spec)
        rows.append(
            {
                "run": s.id[:8],
                **({"data": dataset_name(s.spec)} if datasets else {}),
                "attack": attack_name(s.spec),
                "r": "-" if live else f"{attack_fraction(s.spec):g}",
                "filter": filter_name(s.spec),
                "aggregator": aggregator_name(s.spec),
                **({"engine": engine(s.spec)} if engines else {}),
                **{key: _cell(value) if value is None else str(value) for key, value in distinguishing.items()},
                "seed": _cell(seed(s.spec)),
                "status": s.status,
                "rounds": str(s.rounds) if live else f"{s.rounds}/{num_rounds(s.spec)}",
                "best": _cell(s.best),
                "final": _cell(s.final),
                "precision": _cell(s.precision),
                "recall": _cell(s.recall),
                **({"unusable": str(s.unusable)} if unusable else {}),
            }
        )
    if rows:
        rows, shared = _narrowed(rows)
        print_table([list(row.values()) for row in rows], list(rows[0]))
        if shared:
            print(shared)


def _narrowed(rows: list[dict[str, str]]) -> tuple[list[dict[str, str]], str]:
    """Return rows for the terminal, and a sentence about the columns that were left out.

    If the terminal is too narrow for all columns, the columns with the same value in all rows are left out.
    """
    width = sum(max(len(name), *(len(row[name]) for row in rows)) + 3 for name in rows[0])
    if len(rows) == 1 or not sys.stdout.isatty() or width <= terminal_width():
        return rows, ""
    same = [name for name in rows[0] if name != "run" and len({row[name] for row in rows}) == 1]
    narrow = [{name: value for name, value in row.items() if name not in same} for row in rows]
    return narrow, f"All runs: {', '.join(f'{name} {rows[0][name]}' for name in same)}." if same else ""


def _print_rounds(rounds: Sequence[RoundDetails]) -> None:
    fates = [fate for fate in Fate if fate is Fate.KEPT or any(fate in row.fates for row in rounds)]
    targeted = any(row.source_accuracy is not None for row in rounds)
    measured = ["accuracy", "loss", "attack_success", *(["source_accuracy"] if targeted else [])]
    header = ["round", *measured, *fates, "caught", "missed", "note"]
    cells = []
    for row in rounds:
        before = [row.round, *(getattr(row, name) for name in measured)]
        counts = [row.fates.get(fate, 0) for fate in fates]
        cells.append([_cell(value) for value in (*before, *counts, row.caught, row.missed, row.note)])
    print_table(cells, header)


def _print_not_kept(clients: Sequence[ClientDetails], path: Path) -> None:
    rows = [
        [
            str(row.client),
            f"{row.not_kept} of {row.rounds} rounds",
            ", ".join(f"{fate} {count}" for fate, count in row.fates.items()),
            row.reason or "-",
        ]
        for row in clients[:CLIENTS_SHOWN]
    ]
    print_table(rows, ["client", "not kept", "fates", "most frequent reason"], title="Clients that were not kept")
    if len(clients) > CLIENTS_SHOWN:
        print(f"and {len(clients) - CLIENTS_SHOWN} more. `flanders export {path} --csv FOLDER` writes all of them.")


def print_table(rows: Sequence[Sequence[str]], columns: Sequence[str], title: str = "") -> None:
    """Print a table. In a terminal, the table is at most as wide as the terminal. Elsewhere it may be wider."""
    if sys.stdout.isatty() and find_spec("rich") is not None:  # rich is installed with the extra `sim`
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table

        drawn = Table(*columns, title=title or None, box=SIMPLE, title_justify="left")
        for row in rows:
            drawn.add_row(*(cell.replace("[", "\\[") for cell in row))
        Console(width=terminal_width()).print(drawn)
        return
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    if title:
        print(f"\n{title}")
    for row in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def terminal_width(default: int = 116) -> int:
    """Return the width of the terminal in characters, but at least 60. Without a terminal, it is `default`."""
    return max(60, shutil.get_terminal_size((default, 24)).columns)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
