"""The commands `flanders leaderboard run`, `table` and `submit`, and their arguments.

The leaderboard compares all defences under one protocol: the same attacks, datasets and seeds. Its results are rows
of CSV files, one row for each run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flanders.checks import InputError
from flanders.cli.run_options import add_run_options, option_changes, workforce_of
from flanders.extras import needing
from flanders.leaderboard.protocol import ALL, CORE, MINORITY, SHARES, read_protocol
from flanders.report.text import terminal_width

if TYPE_CHECKING:
    from flanders.leaderboard.entrants import Entrant

DATASETS = tuple(read_protocol().datasets)
"""The names of the datasets of the leaderboard."""
RESULTS = Path("leaderboard.sqlite")
"""The default results file of `leaderboard run`."""
Command = Callable[[argparse.Namespace], int]
"""A function that carries out a command and returns the exit code."""
Add = Callable[[str, Command, str], argparse.ArgumentParser]
"""A function that adds a command to the parser. It gets the name, the function and the help text of the command."""


def run_board(options: argparse.Namespace) -> int:
    """Carry out the chosen runs of the leaderboard, except those that are done.

    With `--dry-run`, print the command of each chosen run instead.
    """
    with needing("sim"):
        from flanders.experiments.execution import run_with_output_to_stderr
        from flanders.leaderboard.cells import attacks_named, cells_of, chosen_cells

    protocol = read_protocol()
    attacks = ALL if attacks_named(options.where) else options.attacks
    all_cells = cells_of(protocol, _entrants(options.defences), options.dataset, attacks)
    cells = chosen_cells(all_cells, options.where)
    if options.dry_run:
        for cell, _ in cells:
            print(cell.command)
        print(f"{len(cells)} runs.")
        return 0
    found = (entrant.experiment(protocol, cell.dataset, cell.case, cell.seed) for cell, entrant in cells)
    runs = {experiment.id: experiment for experiment in found}  # defences with the same settings share a run
    return run_with_output_to_stderr(
        options.out, list(runs.values()), option_changes(options), workforce_of(options)
    )


def table_of_board(options: argparse.Namespace) -> int:
    """Print the leaderboard: one line for each defence."""
    with needing("sim"):
        from flanders.leaderboard.board_rows import read_rows
        from flanders.leaderboard.cells import attacks_named
        from flanders.leaderboard.standings import standings_of
        from flanders.leaderboard.tabling import cases_with, published_rows, rendered, rows_with, shares_of

    rows = [*([] if options.only else published_rows()), *(row for path in options.rows for row in read_rows(path))]
    protocol = read_protocol()
    cases = cases_with(protocol, ALL if attacks_named(options.where) else options.attacks, options.shares)
    standings = standings_of(rows_with(rows, options.where), options.dataset, cases)
    title = f"Leaderboard, protocol {protocol.version}: {options.dataset}, {shares_of(standings.cases)}"
    print(rendered(standings, title, options.format, terminal_width(116)), end="")
    return 0


def submit(options: argparse.Namespace) -> int:
    """Check defences, check submitted rows, or write the rows of finished runs."""
    with needing("sim"):
        from flanders.leaderboard.board_rows import measured_runs, read_rows, write_rows
        from flanders.leaderboard.cells import KEYS, condition
        from flanders.leaderboard.submission import check_entrant, check_submitted_rows, packages_of

    if not options.check and not options.results:
        raise InputError("Say what to do: --check, or --results FILE with --out FILE. See --help.")
    if options.results and options.out is None:
        raise InputError("--results needs --out FILE: the CSV file to which the rows are written.")
    entrants = _entrants(options.defences)
    if options.check:
        checks = (
            (line for entrant in entrants for line in check_entrant(entrant))
            if options.rows is None
            else check_submitted_rows(options.rows, read_rows(options.rows), entrants)
        )
        for line in checks:
            print(line, flush=True)
    if options.results:
        merged = {row.cell: row for row in (read_rows(options.out) if options.out.exists() else ())}
        packages = packages_of(entrants)
        rows = [row for path in options.results for row in measured_runs(path, entrants, packages)]
        conditions = [condition(where, KEYS, [row.cell for row in rows]) for where in options.where]
        merged |= {row.cell: row for row in rows if all(fulfils(row.cell) for fulfils in conditions)}
        if not merged:
            raise InputError("These files have no finished run of the leaderboard. Use `leaderboard run` first.")
        write_rows(options.out, merged.values())
        print(f"{options.out}: {len(merged)} rows.")
    return 0


def _entrants(path: Path | None) -> Sequence[Entrant]:
    """Return the defences that a file describes. Without a file, return the defences of this package."""
    with needing("sim"):
        from flanders.leaderboard.entrants import own_entrants, read_entrants

    return own_entrants() if path is None else read_entrants(path)


def add_leaderboard(add: Add) -> None:
    """Add the three commands to the parser of `flanders leaderboard`."""
    run = add("run", run_board, "Run defences against the attacks of the leaderboard, except runs that are done.")
    _dataset(run)
    _defences(run)
    _attacks(run)
    _where(run, "only runs with these values, e.g. defence=krum,median or seed=40 (may be repeated)")
    text = "results file (default: %(default)s)"
    run.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help=text)
    run.add_argument("--dry-run", action="store_true", help="print the command of each run without running it")
    add_run_options(run)
    table = add("table", table_of_board, "Show the leaderboard: one line for each defence.")
    _dataset(table)
    text = "CSV file with rows to show besides those that come with the package (may be repeated)"
    table.add_argument("--rows", action="append", type=Path, default=[], metavar="FILE", help=text)
    table.add_argument("--only", action="store_true", help="leave out the rows that come with the package")
    text = "shares of malicious clients: minority (10-40%%), majority (60-80%%) or all (default: %(default)s)"
    table.add_argument("--shares", choices=SHARES, default=MINORITY, help=text)
    _attacks(table)
    _where(table, "only runs with these values, e.g. attack=lie,ipm or fraction=0.2 (may be repeated)")
    formats = ("text", "markdown", "latex", "csv")
    text = "format of the table (default: %(default)s)"
    table.add_argument("--format", choices=formats, default=formats[0], help=text)
    submission = add(
        "submit", submit, "Check a defence of your own for the leaderboard, and write the rows of its runs."
    )
    text = "TOML file that describes the defences (default: the defences of this package)"
    submission.add_argument("defences", nargs="?", type=Path, metavar="DEFENCES", help=text)
    text = "check the defences; with --rows, check the rows of that file instead, and repeat some of their runs"
    submission.add_argument("--check", action="store_true", help=text)
    text = "results file of `leaderboard run` (may be repeated)"
    submission.add_argument("--results", action="append", type=Path, default=[], metavar="FILE", help=text)
    text = "CSV file for the rows of --results; rows of other runs in this file stay"
    submission.add_argument("--out", type=Path, metavar="FILE", help=text)
    _where(submission, "with --results: only runs with these values, e.g. start=1 (may be repeated)")
    submission.add_argument("--rows", type=Path, metavar="FILE", help="CSV file of rows to check")


def _where(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUES", help=text)


def _dataset(parser: argparse.ArgumentParser) -> None:
    text = f"one of {', '.join(DATASETS)} (default: %(default)s, which needs no files)"
    parser.add_argument("dataset", nargs="?", choices=DATASETS, default=DATASETS[0], metavar="DATASET", help=text)


def _defences(parser: argparse.ArgumentParser) -> None:
    text = "TOML file that describes defences of your own (default: the defences of this package)"
    parser.add_argument("--defences", type=Path, metavar="FILE", help=text)


def _attacks(parser: argparse.ArgumentParser) -> None:
    text = (
        "core: the attacks of the ranking; all: every attack; ignored if --where names attacks "
        "(default: %(default)s)"
    )
    parser.add_argument("--attacks", choices=(CORE, ALL), default=CORE, help=text)
