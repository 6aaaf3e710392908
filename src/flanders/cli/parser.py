"""The parser of the command line: the commands, and their arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import flanders
from flanders.checks import InputError, did_you_mean
from flanders.choices import KINDS
from flanders.cli import commands
from flanders.paper.tables import VARIANTS
from flanders.results.run import FLOWER, SIMULATOR
from flanders.studies.questions import QUESTIONS

RESULTS = Path("results.sqlite")
"""The results file, unless another is named."""
Command = Callable[[argparse.Namespace], int]
"""Carries out a command and returns the exit code."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with a guess at what was meant."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description)
        self.commands: list[argparse.ArgumentParser] = []
        """The parsers of its commands."""

    def error(self, message: str) -> NoReturn:
        """Complain as about any other input."""
        guess = ""
        if choice := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            guess = did_you_mean(choice[1], [word.strip(" '") for word in choice[2].split(",")])
        elif option := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            known = [
                name for each in (self, *self.commands) for name in re.findall(r"--[\w-]+", each.format_help())
            ]
            guess = did_you_mean(option[1], known)
        raise InputError(f"{message}.{guess} `{self.prog} --help` tells more.")


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="flanders", description="Federated learning under attack: run experiments and look at their results."
    )
    parser.add_argument("--version", action="version", version=f"flanders {flanders.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = subparsers.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        parser.commands.append(sub)
        return sub

    running = [
        _run(add("run", commands.run, "Run the experiments of spec files. Those that are done are not run again.")),
        _resume(add("resume", commands.resume, "Go on with everything in a results file that is not done.")),
        _reproduce(
            add("reproduce", commands.reproduce, "Run the paper's experiments and compare with what it published.")
        ),
        _study(add("study", commands.study, "Answer a question about the method with a table and a figure.")),
    ]
    for sub in running:
        _running(sub)
    _list(add("list", commands.list_entries, "List what a spec can choose by name, with parameters and defaults."))
    add("schema", commands.schema, "Print a JSON Schema of spec files, for editors that check and complete them.")
    _show(add("show", commands.show, "Show what is in a results file, or one run of it."))
    _table(
        add(
            "table",
            commands.table,
            "Show the final accuracy of a grid: attacks by defences, mean and range.",
        )
    )
    _export(add("export", commands.export, "Write runs, rounds and clients as tables for other programs."))
    _report(add("report", commands.report, "Write a report as one HTML file that opens offline."))
    _plot(add("plot", commands.plot, "Write the figures of the report for a paper."))
    return parser


def _run(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "specs", nargs="+", type=Path, metavar="SPEC", help="TOML file; a list in it is an axis of the grid"
    )
    _set(parser, "change a value of the specs, e.g. federation.rounds=3 (may be repeated)")
    _out(parser)
    engines = (SIMULATOR, FLOWER)
    parser.add_argument(
        "--engine", choices=engines, default=SIMULATOR, help="what carries the runs out (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs without running them")
    return parser


def _resume(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "results", nargs="?", type=Path, default=RESULTS, help="results file (default: %(default)s)"
    )
    return parser


def _reproduce(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "names", metavar="NAME", help="a table or figure by its label (tab:pr-20), several with commas, or all"
    )
    parser.add_argument(
        "--variant",
        choices=VARIANTS,
        default=VARIANTS[0],
        help="settings of the published code, or of the paper (default: %(default)s)",
    )
    parser.add_argument("--dataset", metavar="NAMES", help="only these datasets, e.g. mnist,fashion-mnist")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="only these cells, e.g. aggregator=fedavg,multikrum (may be repeated)",
    )
    _seeds(parser, 3)
    _set(parser, "change a value of every run, e.g. federation.rounds=3")
    _out(parser)
    parser.add_argument("--dry-run", action="store_true", help="list the runs that are missing")
    parser.add_argument("--table-only", action="store_true", help="show what there is, run nothing")
    parser.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")
    parser.add_argument("--tables", type=Path, metavar="DIR", help="also write all tables there, in every format")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also draw the figures there, as SVG")
    return parser


def _study(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", choices=tuple(QUESTIONS), metavar="NAME", help=f"one of {', '.join(QUESTIONS)}")
    parser.add_argument("--dataset", default="digits", metavar="NAME", help="default: digits, which needs no files")
    parser.add_argument("--attacks", metavar="NAMES", help="instead of the study's own, e.g. gauss,lie")
    parser.add_argument("--rounds", type=int, metavar="N", help="instead of the study's own")
    _seeds(parser, 1)
    _set(parser, "change a value of every run, e.g. federation.num_clients=20")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("studies"),
        metavar="DIR",
        help="folder for results, tables and figures (default: %(default)s)",
    )
    parser.add_argument("--format", choices=("pdf", "svg", "png"), default="png")
    return parser


def _running(parser: argparse.ArgumentParser) -> None:
    """Add the options of all commands that carry out runs."""
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where the datasets are (else $FLANDERS_DATA)")
    parser.add_argument("--device", metavar="NAME", help="auto, cpu or cuda")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="processes that share the runs (default: 1)"
    )


def _set(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=text)


def _out(parser: argparse.ArgumentParser) -> None:
    text = "results file (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help=text)


def _seeds(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--seeds", type=int, default=default, metavar="N", help="seeds 0 to N-1 (default: %(default)s)"
    )


def _list(parser: argparse.ArgumentParser) -> None:
    text = f"one of {', '.join(KINDS)} (default: all)"
    parser.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND", help=text)
    parser.add_argument("--json", action="store_true", help="as JSON")


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path)
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run's id, or the beginning of it")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path)
    parser.add_argument("--format", choices=("markdown", "latex", "csv"), default="markdown")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path)
    formats = parser.add_mutually_exclusive_group(required=True)
    formats.add_argument("--csv", type=Path, metavar="DIR")
    formats.add_argument("--parquet", type=Path, metavar="DIR")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path)
    parser.add_argument("--html", type=Path, metavar="FILE", help="default: beside the results")


def _plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--format", choices=("pdf", "svg", "png"), default="pdf")
