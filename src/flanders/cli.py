"""The command line. Exit codes: 0 all is well, 1 a run failed, 2 wrong input or results file, 130 interrupted."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flanders
from flanders.types import InputError

RESULTS = Path("results.sqlite")
KINDS = ("attacks", "poisons", "filters", "aggregators", "preaggregators", "datasets", "partitions", "models")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    logging.basicConfig(format="%(message)s", level=logging.ERROR)  # what is odd in a round is noted in the results
    try:
        return command(options)
    except InputError as error:
        print(f"flanders: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("flanders: interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `flanders show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flanders", description="Federated learning under attack: run experiments, look at what came of them."
    )
    parser.add_argument("--version", action="version", version=f"flanders {flanders.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    run = add("run", _run, "Run the experiments of spec files; those that are done already are not run again.")
    run.add_argument(
        "specs", nargs="+", type=Path, metavar="SPEC", help="TOML file; a list in it is an axis of the grid"
    )
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                     help="change a value of the specs, e.g. federation.rounds=3 (may be repeated)")  # fmt: skip
    run.add_argument(
        "--out", type=Path, default=RESULTS, metavar="FILE", help="results file (default: %(default)s)"
    )
    run.add_argument("--dry-run", action="store_true", help="list the runs without running them")
    resume = add("resume", _resume, "Go on with everything in a results file that is not done.")
    resume.add_argument(
        "results", nargs="?", type=Path, default=RESULTS, help="results file (default: %(default)s)"
    )
    for sub in (run, resume):
        sub.add_argument(
            "--data-dir", type=Path, metavar="DIR", help="where the datasets are (else $FLANDERS_DATA)"
        )
        sub.add_argument("--device", metavar="NAME", help="auto, cpu or cuda")
        sub.add_argument(
            "--jobs", type=int, default=1, metavar="N", help="processes that share the runs (default: 1)"
        )

    listing = add("list", _list, "List what a spec can name, with parameters and defaults.")
    listing.add_argument(
        "kind", nargs="?", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)} (default: all)"
    )
    listing.add_argument("--json", action="store_true", help="as JSON")

    show = add("show", _show, "Show what is in a results file, or one run of it.")
    show.add_argument("results", type=Path)
    show.add_argument("run", nargs="?", metavar="RUN", help="the run's id, or the beginning of it")
    show.add_argument("--json", action="store_true", help="as JSON")

    export = add("export", _export, "Write runs, rounds and clients as tables for other programs.")
    export.add_argument("results", type=Path)
    formats = export.add_mutually_exclusive_group(required=True)
    formats.add_argument("--csv", type=Path, metavar="DIR")
    formats.add_argument("--parquet", type=Path, metavar="DIR")

    report = add("report", _report, "Write a report as one HTML file that opens offline.")
    report.add_argument("results", type=Path)
    report.add_argument("--html", type=Path, metavar="FILE", help="default: beside the results")
    plot = add("plot", _plot, "Write the figures of the report for a paper.")
    plot.add_argument("results", type=Path)
    plot.add_argument("--out", type=Path, required=True, metavar="DIR")
    plot.add_argument("--format", choices=("pdf", "svg", "png"), default="pdf")
    return parser


def _run(options: argparse.Namespace) -> int:
    from flanders.experiments.spec import read_specs

    specs = read_specs(options.specs, options.overrides)
    if options.dry_run:
        from flanders.experiments.summary import label

        for spec in specs:
            print(f"{spec.id}  {label(spec.canonical)}")
        return 0
    from flanders.experiments.session import run_specs

    return run_specs(options.out, specs, _changes(options), options.jobs)


def _resume(options: argparse.Namespace) -> int:
    from flanders.experiments.session import resume

    return resume(options.results, _changes(options), options.jobs)


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    if options.jobs < 1:
        raise InputError(f"--jobs must be at least 1. Got {options.jobs} instead.")
    given = {"data_dir": options.data_dir and options.data_dir.absolute(), "device": options.device}
    return {name: value for name, value in given.items() if value is not None}


def _list(options: argparse.Namespace) -> int:
    from flanders.experiments import show

    show.listing((options.kind,) if options.kind else KINDS, as_json=options.json)
    return 0


def _show(options: argparse.Namespace) -> int:
    from flanders.experiments import show

    if options.run is None:
        show.results(options.results, as_json=options.json)
    else:
        show.run(options.results, options.run, as_json=options.json)
    return 0


def _export(options: argparse.Namespace) -> int:
    from flanders.experiments.export import export_csv, export_parquet

    written = (
        export_csv(options.results, options.csv)
        if options.csv
        else export_parquet(options.results, options.parquet)
    )
    for path in written:
        print(path)
    return 0


def _report(options: argparse.Namespace) -> int:
    from flanders.experiments.catalog import need

    html = options.html or options.results.with_suffix(".html")
    need("flanders.report").write_html(options.results, html)
    print(html)
    return 0


def _plot(options: argparse.Namespace) -> int:
    from flanders.experiments.catalog import need

    need("flanders.report").write_figures(options.results, options.out, options.format)
    print(options.out)
    return 0
