"""The commands of the command line. Each is a function that takes the parsed arguments and returns the exit code.

Modules that need optional packages are imported inside a command. So the other commands work without these
packages.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Collection
from dataclasses import replace

from flanders.audit import Head, verify_trail
from flanders.checks import InputError
from flanders.choices import KINDS, registry
from flanders.cli.audit import heads_in_logs, print_check
from flanders.cli.listing import print_listing
from flanders.cli.run_options import option_changes, workforce_of
from flanders.extras import needing
from flanders.report import text, write_figures, write_html
from flanders.report.crosstable import TableStyle, crosstable
from flanders.results.export import export_csv, export_parquet
from flanders.results.labels import labels
from flanders.results.schema import reading
from flanders.watch.log import watch_log

HOST, PORT = "127.0.0.1", 8642
"""The default address of the live page, which only this machine can reach, and its default port. No well-known
service uses this port."""
MOST_NAMED = 10
"""The most files that `flanders plot` names one by one, so that its output stays short."""


def run(options: argparse.Namespace) -> int:
    """Run the experiments of spec files."""
    with needing("sim"):
        from flanders.experiments.execution import run_experiments
        from flanders.experiments.run_callbacks import parse_callback
        from flanders.experiments.spec import read_specs

    runs = [replace(each, engine=options.engine) for each in read_specs(options.specs, options.overrides)]
    if options.dry_run:
        for each, name in zip(runs, labels([each.canonical for each in runs]), strict=True):
            print(f"{each.id}  {name}")
        return 0
    callbacks = [parse_callback(text) for text in options.callbacks]
    return run_experiments(options.out, runs, option_changes(options), workforce_of(options), callbacks)


def resume(options: argparse.Namespace) -> int:
    """Continue the runs of a results file that are not done."""
    with needing("sim"):
        from flanders.experiments.execution import resume_experiments
        from flanders.experiments.run_callbacks import parse_callback

    callbacks = [parse_callback(text) for text in options.callbacks]
    return resume_experiments(options.results, option_changes(options), workforce_of(options), callbacks)


def reproduce(options: argparse.Namespace) -> int:
    """Run the experiments of the FLANDERS paper and compare the results with those in the paper."""
    with needing("sim"):
        from flanders.experiments.execution import run_with_output_to_stderr
        from flanders.paper import reproduction

    limits = [*options.where, *([f"dataset={options.dataset}"] if options.dataset else [])]
    wanted = reproduction.Reproduction.of(
        options.names, options.variant, options.seeds, reproduction.parse_where(limits), options.overrides
    )
    changes, workforce = option_changes(options), workforce_of(options)
    if options.dry_run:
        reproduction.print_missing(wanted, options.out)
        return 0
    if options.table_only and not (options.tables and (options.tables / f"{options.variant}.csv").exists()):
        with reading(options.out):
            pass  # raises an error now if there is nothing to show
    if options.tables:
        reproduction.check_tables(options.tables, wanted)
    if options.figures:
        with needing("report"):  # raises an error before the runs, which may take hours
            from flanders.paper.figures import write_paper_figures
    code = 0
    if not options.table_only:
        code = run_with_output_to_stderr(options.out, wanted.runs(), changes, workforce)
    compared = wanted.compare(options.out)
    reproduction.print_compared(compared, wanted.words, options.format)
    if options.tables:
        # The tables also have the numbers that an earlier command has written to the CSV file in this folder.
        compared = reproduction.write_tables(options.tables, wanted, options.out)
    if options.figures:
        write_paper_figures(wanted, options.out, compared, options.figures)
    return code


def study(options: argparse.Namespace) -> int:
    """Answer a question that the FLANDERS paper leaves open, with a table and a figure."""
    with needing("studies"):
        from flanders.studies.report import conduct

    if options.rounds is not None and options.rounds < 1:
        raise InputError(f"--rounds must be at least 1. Got {options.rounds} instead.")
    rounds = [] if options.rounds is None else [f"federation.rounds={options.rounds}"]
    return conduct(
        options.name,
        options.out,
        dataset=options.dataset,
        seeds=options.seeds,
        attacks=() if options.attacks is None else options.attacks.split(","),
        overrides=[*rounds, *options.overrides],
        changes=option_changes(options),
        workforce=workforce_of(options),
        format=options.format,
    )


def list_entries(options: argparse.Namespace) -> int:
    """List everything that a spec can choose by name."""
    kind = options.kind
    if kind is not None and kind not in KINDS:
        _say_where(kind)
    print_listing(KINDS if kind is None else (kind,), as_json=options.json)
    return 0


def _say_where(name: str) -> None:
    """Raise an error that says in which list the name is, if it is in one."""
    for kind in KINDS:
        known: Collection[str] = ()
        with contextlib.suppress(InputError):  # an optional package is missing; the name may be in another list
            known = registry(kind)
        if name in known:
            raise InputError(f"{name} is one of the {kind}. `flanders list {kind}` shows it.")


def schema(options: argparse.Namespace) -> int:
    """Print a JSON Schema of spec files."""
    with needing("sim"):
        from flanders.experiments.json_schema import spec_schema

    print(json.dumps(spec_schema(), indent=2))
    return 0


def show(options: argparse.Namespace) -> int:
    """Show all runs of a results file, or one run in detail."""
    if options.run is None:
        text.print_results(options.results, as_json=options.json)
    else:
        text.print_run(options.results, options.run, as_json=options.json)
    return 0


def table(options: argparse.Namespace) -> int:
    """Show a table of results: a row for each attack, a column for each defence."""
    bold = options.best == "bold"
    style = TableStyle(options.metric, options.spread, bold, options.caption or "", options.label or "")
    width = text.terminal_width(80)
    print(crosstable(options.results, options.format, style, options.where, width), end="")
    return 0


def export(options: argparse.Namespace) -> int:
    """Write the tables of runs, rounds and clients as files for other programs."""
    write, folder = (export_csv, options.csv) if options.csv else (export_parquet, options.parquet)
    for path in write(options.results, folder):
        print(path)
    return 0


def report(options: argparse.Namespace) -> int:
    """Write a report as one HTML file."""
    results = options.results
    html = options.html or results.parent / f"{results.stem or 'report'}.html"
    write_html(options.results, html)
    print(html)
    return 0


def watch(options: argparse.Namespace) -> int:
    """Show a results file while it is written: as a page, or as a log in the terminal."""
    if options.once and not options.text:
        raise InputError("--once needs --text. `flanders report` writes a page of the rounds so far.")
    page = {"--host": options.host, "--port": options.port, "--token-file": options.token_file}
    if options.text and (named := [name for name, value in page.items() if value is not None]):
        raise InputError(f"--text shows no page, so omit {' and '.join(named)}.")
    if options.once or options.results.is_dir() or (options.results.exists() and options.results.stat().st_size):
        with reading(options.results):
            pass  # raises an error now if it is not a results file; without --once, a missing one may appear later
    if options.text:
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the usual way to end the log
            watch_log(options.results, once=options.once)
        return 0
    with needing("watch"):
        from flanders.watch.access import read_token
        from flanders.watch.server import serve

    host, port = options.host or HOST, PORT if options.port is None else options.port
    serve(options.results, host, port, read_token(host, options.token_file))
    return 0


def plot(options: argparse.Namespace) -> int:
    """Write the figures of the report as files."""
    only = options.only
    written = write_figures(options.results, options.out, options.format, only, options.where)
    for path in written[:MOST_NAMED]:
        print(path)
    if len(written) > MOST_NAMED:
        print(f"and {len(written) - MOST_NAMED} more in {options.out}")
    if not only and [path.stem for path in written] == ["grid"]:
        print(
            "There are several attacks or settings. For all figures of one of them, add --where, e.g. "
            "--where attack=lie --where r=0.2. For one figure of each, add --only, e.g. --only accuracy.",
            file=sys.stderr,
        )
    return 0


def audit(options: argparse.Namespace) -> int:
    """Check whether an audit trail was changed."""
    heads = [*map(Head.parse, options.heads), *heads_in_logs(options.logs)]
    if options.state is not None:
        with needing("flower"):
            from flanders.flower.saved_memory import saved_audit_head

        heads.append(saved_audit_head(options.state))
    check = verify_trail(options.trail, heads)
    print_check(check, options.trail, heads)
    return 0 if check.intact else 1
