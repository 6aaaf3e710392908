"""The command line. Exit codes: 0 all is well, 1 a run failed, 2 wrong input or results file, 130 interrupted."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import flanders
from flanders.checks import InputError, did_you_mean

RESULTS = Path("results.sqlite")
STUDIES = (
    "predictability",
    "sampled-parameters",
    "refit",
    "distance",
    "window",
    "order",
    "alpha",
    "selection",
    "fldetector",
)
KINDS = ("attacks", "poisons", "filters", "aggregators", "preaggregators", "datasets", "partitions", "models")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)  # what is odd in a round is noted in the results
    try:
        options = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
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


class Parser(argparse.ArgumentParser):
    """Says in one line, with a guess, what is wrong with the arguments."""

    options: ClassVar[set[str]] = set()
    """Those of all commands."""

    def add_argument(self, *names: Any, **details: Any) -> argparse.Action:
        """Add an argument, and remember what it is called."""
        self.options.update(name for name in names if name.startswith("--"))
        return super().add_argument(*names, **details)

    def error(self, message: str) -> NoReturn:
        """Complain as about any other input."""
        known, guess = self.options, ""
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            known = {word.strip(" '") for word in choice[2].split(",")}
        if given := choice or re.search(r"unrecognized arguments: (--[\w-]+)", message):
            guess = did_you_mean(given[1], known)
        raise InputError(f"{message}.{guess} `{self.prog} --help` tells more.")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
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
    run.add_argument("--engine", choices=("simulator", "flower"), default="simulator",
                     help="what carries the runs out (default: %(default)s)")  # fmt: skip
    run.add_argument("--dry-run", action="store_true", help="list the runs without running them")
    resume = add("resume", _resume, "Go on with everything in a results file that is not done.")
    resume.add_argument(
        "results", nargs="?", type=Path, default=RESULTS, help="results file (default: %(default)s)"
    )
    again = add("reproduce", _reproduce, "Run the paper's experiments and show ours beside what was published.")
    again.add_argument(
        "names", metavar="NAME", help="a table or figure by its label (tab:pr-20), several with commas, or all"
    )
    again.add_argument("--variant", choices=("reference", "textbook"), default="reference",
                       help="settings of the published code, or of the paper (default: %(default)s)")  # fmt: skip
    again.add_argument("--dataset", metavar="NAMES", help="only these datasets, e.g. mnist,fashion-mnist")
    again.add_argument("--where", action="append", default=[], metavar="KEY=VALUES",
                       help="only these cells, e.g. aggregator=fedavg,multikrum (may be repeated)")  # fmt: skip
    again.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N-1 (default: %(default)s)")
    again.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                       help="change a value of every run, e.g. federation.rounds=3")  # fmt: skip
    again.add_argument(
        "--out", type=Path, default=RESULTS, metavar="FILE", help="results file (default: %(default)s)"
    )
    again.add_argument("--dry-run", action="store_true", help="list the runs that are missing")
    again.add_argument("--table-only", action="store_true", help="show what there is, run nothing")
    again.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")
    again.add_argument("--tables", type=Path, metavar="DIR", help="also write all tables there, in every format")
    again.add_argument("--figures", type=Path, metavar="DIR", help="also draw the figures there, as SVG")
    study = add("study", _study, "Answer a question of the paper or of its future work with a table and a figure.")
    study.add_argument("name", choices=STUDIES, metavar="NAME", help=f"one of {', '.join(STUDIES)}")
    study.add_argument("--dataset", default="digits", metavar="NAME", help="default: digits, which needs no files")
    study.add_argument("--attacks", metavar="NAMES", help="instead of the study's own, e.g. gauss,lie")
    study.add_argument("--rounds", type=int, metavar="N", help="instead of the study's own")
    study.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N-1 (default: %(default)s)")
    study.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                       help="change a value of every run, e.g. federation.clients=20")  # fmt: skip
    study.add_argument("--out", type=Path, default=Path("studies"), metavar="DIR",
                       help="folder for results, tables and figures (default: %(default)s)")  # fmt: skip
    study.add_argument("--format", choices=("pdf", "svg", "png"), default="png")
    for sub in (run, resume, again, study):
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

    table = add(
        "table", _table, "Show the last accuracy of a grid: attacks by defences, mean and range over seeds."
    )
    table.add_argument("results", type=Path)
    table.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")

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

    specs = [spec.on(options.engine) for spec in read_specs(options.specs, options.overrides)]
    if options.dry_run:
        from flanders.results.labels import labels

        for spec, name in zip(specs, labels([spec.canonical for spec in specs]), strict=True):
            print(f"{spec.id}  {name}")
        return 0
    from flanders.experiments.commands import run_specs

    return run_specs(options.out, specs, _changes(options), options.jobs)


def _resume(options: argparse.Namespace) -> int:
    from flanders.experiments.commands import resume

    return resume(options.results, _changes(options), options.jobs)


def _reproduce(options: argparse.Namespace) -> int:
    from flanders.catalog import need
    from flanders.experiments.commands import run_aside
    from flanders.paper import reproduction
    from flanders.results.schema import reading

    limits = [*options.where, *([f"dataset={options.dataset}"] if options.dataset else [])]
    asked = reproduction.Reproduction.of(
        options.names, options.variant, options.seeds, reproduction.parse_where(limits), options.overrides
    )
    changes = _changes(options)
    if options.dry_run:
        reproduction.show_missing(asked, options.out)
        return 0
    if options.table_only and not (options.tables and (options.tables / f"{options.variant}.csv").exists()):
        with reading(options.out):
            pass  # or say now that there is nothing to show
    if options.tables:
        reproduction.check_tables(options.tables, asked)
    draw = need("flanders.report.paper").write_paper_figures if options.figures else None
    code = 0
    if not options.table_only:
        code = run_aside(options.out, asked.runs(), changes, options.jobs)
    compared = asked.compare(options.out)
    reproduction.show(compared, asked.words, options.format)
    if options.tables:
        compared = reproduction.write_tables(options.tables, asked, options.out)  # and what the folder had
    if draw:
        draw(asked, options.out, compared, options.figures)
    return code


def _study(options: argparse.Namespace) -> int:
    from flanders.catalog import need

    rounds = [] if options.rounds is None else [f"federation.rounds={options.rounds}"]
    code: int = need("flanders.report.studies").conduct(
        options.name,
        options.out,
        dataset=options.dataset,
        seeds=options.seeds,
        attacks=() if options.attacks is None else options.attacks.split(","),
        overrides=[*rounds, *options.overrides],
        changes=_changes(options),
        jobs=options.jobs,
        format=options.format,
    )
    return code


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    if options.jobs < 1:
        raise InputError(f"--jobs must be at least 1. Got {options.jobs} instead.")
    given = {"data_dir": options.data_dir and options.data_dir.absolute(), "device": options.device}
    return {name: value for name, value in given.items() if value is not None}


def _list(options: argparse.Namespace) -> int:
    from flanders.report import text as show

    show.print_registries((options.kind,) if options.kind else KINDS, as_json=options.json)
    return 0


def _show(options: argparse.Namespace) -> int:
    from flanders.report import text as show

    if options.run is None:
        show.print_results(options.results, as_json=options.json)
    else:
        show.print_run(options.results, options.run, as_json=options.json)
    return 0


def _table(options: argparse.Namespace) -> int:
    from flanders.report.crosstable import crosstable

    print(crosstable(options.results, options.format), end="")
    return 0


def _export(options: argparse.Namespace) -> int:
    from flanders.results.export import export_csv, export_parquet

    written = (
        export_csv(options.results, options.csv)
        if options.csv
        else export_parquet(options.results, options.parquet)
    )
    for path in written:
        print(path)
    return 0


def _report(options: argparse.Namespace) -> int:
    from flanders.catalog import need

    html = options.html or options.results.with_suffix(".html")
    need("flanders.report").write_html(options.results, html)
    print(html)
    return 0


def _plot(options: argparse.Namespace) -> int:
    from flanders.catalog import need

    need("flanders.report").write_figures(options.results, options.out, options.format)
    print(options.out)
    return 0
