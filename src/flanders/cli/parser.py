"""The parser of the command line: all commands and their arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

import flanders
from flanders.choices import KINDS
from flanders.cli import commands
from flanders.cli.command_parser import Parser
from flanders.cli.commands import HOST, PORT
from flanders.cli.leaderboard import Command, add_leaderboard
from flanders.cli.run_options import add_run_options, whole_number
from flanders.paper.tables import VARIANTS
from flanders.report.crosstable import METRICS
from flanders.report.figures import FIGURE_NAMES
from flanders.report.spread import SPREADS
from flanders.results.spec_keys import FLOWER, SIMULATOR
from flanders.studies.grid_studies import QUESTIONS

RESULTS = Path("results.sqlite")
"""The default results file."""
MOST_SEEDS = 10_000
"""The most seeds of a command. There is a run for each seed, and the list of runs must fit into memory."""
TABLE_FORMATS, FIGURE_FORMATS = ("markdown", "latex", "csv"), ("pdf", "svg", "png")
TABLE_FORMAT_HELP = "format of the tables (default: %(default)s)"
FIGURE_FORMAT_HELP = "format of the figures (default: %(default)s)"


def make_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="flanders", description="Federated learning under attack: run experiments and look at their results."
    )
    parser.add_argument("--version", action="version", version=f"flanders {flanders.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, command: Command, text: str) -> Parser:
        return parser.added(subparsers, name, command, text)

    commands_with_runs = [
        _run(add("run", commands.run, "Run the experiments of spec files, except those that are already done.")),
        _resume(add("resume", commands.resume, "Continue the runs of a results file that are not done.")),
        _reproduce(
            add(
                "reproduce",
                commands.reproduce,
                "Run the experiments of the FLANDERS paper and compare the results with those in the paper.",
            )
        ),
        _study(
            add(
                "study",
                commands.study,
                "Answer a question that the FLANDERS paper leaves open, with a table and a figure.",
            )
        ),
    ]
    for sub in commands_with_runs:
        add_run_options(sub)
    _list(
        add(
            "list",
            commands.list_entries,
            "List everything that a spec can choose by name, with parameters and defaults.",
        )
    )
    add("schema", commands.schema, "Print the JSON Schema of spec files. With it, editors can check specs.")
    _show(add("show", commands.show, "Show all runs of a results file, or one run in detail."))
    _table(
        add(
            "table",
            commands.table,
            "Show a table of accuracies or other measures: a row for each attack, a column for each defence.",
        )
    )
    _export(
        add("export", commands.export, "Write the tables of runs, rounds and clients as files for other programs.")
    )
    _report(add("report", commands.report, "Write a report: one HTML file that opens in a browser, also offline."))
    _watch(add("watch", commands.watch, "Show a results file while it is written: a live page, or a log."))
    _plot(add("plot", commands.plot, "Write the figures of the report as files, e.g. for a paper."))
    text = "Compare all defences under one protocol, and add your own."
    board = subparsers.add_parser("leaderboard", help=text, description=text)
    actions = board.add_subparsers(metavar="ACTION", required=True)
    add_leaderboard(lambda name, command, text: parser.added(actions, name, command, text))
    _audit(add("audit", commands.audit, "Check whether the audit trail of a federation was changed."))
    return parser


def _run(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "specs",
        nargs="+",
        type=Path,
        metavar="SPEC",
        help="TOML file that describes runs. A list in it means one run for each value",
    )
    _set(parser, "set a value in all specs, e.g. federation.rounds=3 (may be repeated)")
    _out(parser)
    engines = (SIMULATOR, FLOWER)
    parser.add_argument(
        "--engine",
        choices=engines,
        default=SIMULATOR,
        help="what runs the clients: the simulator of this package, or Flower's simulation runtime "
        "(default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs without running them")
    _callbacks(parser)
    return parser


def _resume(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=RESULTS,
        metavar="RESULTS",
        help="results file (default: %(default)s)",
    )
    _callbacks(parser)
    return parser


def _callbacks(parser: argparse.ArgumentParser) -> None:
    text = (
        "send each round to tensorboard[=DIR], mlflow[=SERVER], wandb[=PROJECT], wandb-offline[=DIR] or "
        "prometheus[=PORT], or send alarms to webhook=URL or command=WORDS (may be repeated)"
    )
    parser.add_argument("--callback", action="append", default=[], metavar="NAME", dest="callbacks", help=text)


def _reproduce(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "names",
        metavar="NAME",
        help="label of a table or figure of the paper, e.g. tab:pr-20; several as A,B,C; or all",
    )
    parser.add_argument(
        "--variant",
        choices=VARIANTS,
        default=VARIANTS[0],
        help="settings of the paper's published code (reference) or of the paper's text (textbook) "
        "(default: %(default)s)",
    )
    parser.add_argument("--dataset", metavar="NAMES", help="only these datasets, e.g. mnist,fashion-mnist")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="only runs with one of these values, e.g. aggregator=fedavg,multikrum (may be repeated)",
    )
    _seeds(parser, 3)
    _set(parser, "set a value in all runs, e.g. federation.rounds=3 (may be repeated)")
    _out(parser)
    parser.add_argument("--dry-run", action="store_true", help="only list the runs that are not done")
    parser.add_argument("--table-only", action="store_true", help="only show the results that exist")
    parser.add_argument("--format", choices=TABLE_FORMATS, default="markdown", help=TABLE_FORMAT_HELP)
    parser.add_argument(
        "--tables", type=Path, metavar="DIR", help="also write all tables to this folder, in every format"
    )
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also write the figures to this folder, as SVG")
    return parser


def _study(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("name", choices=tuple(QUESTIONS), metavar="NAME", help=f"one of {', '.join(QUESTIONS)}")
    parser.add_argument(
        "--dataset", default="digits", metavar="NAME", help="dataset (default: %(default)s, which needs no files)"
    )
    parser.add_argument(
        "--attacks", metavar="NAMES", help="attacks, e.g. gauss,lie (default: the attacks of the study)"
    )
    parser.add_argument(
        "--rounds", type=whole_number, metavar="N", help="number of rounds (default: the number of the study)"
    )
    _seeds(parser, 1)
    _set(parser, "set a value in all runs, e.g. federation.num_clients=20 (may be repeated)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("studies"),
        metavar="DIR",
        help="folder for results, tables and figures (default: %(default)s)",
    )
    parser.add_argument("--format", choices=FIGURE_FORMATS, default="png", help=FIGURE_FORMAT_HELP)
    return parser


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", type=Path, metavar="RESULTS", help="results file")


def _set(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=text)


def _out(parser: argparse.ArgumentParser) -> None:
    text = "results file (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE", help=text)


def _seeds(parser: argparse.ArgumentParser, default: int) -> None:
    parser.add_argument(
        "--seeds",
        type=_seed_count,
        default=default,
        metavar="N",
        help="run with the seeds 0 to N-1 (default: %(default)s)",
    )


def _seed_count(text: str) -> int:
    seeds = whole_number(text)
    if seeds > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text[:20]} seeds are too many. Give a number up to {MOST_SEEDS:,}")
    return seeds


def _list(parser: argparse.ArgumentParser) -> None:
    text = f"one of {', '.join(KINDS)} (default: all)"
    parser.add_argument("kind", nargs="?", metavar="KIND", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _show(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    parser.add_argument("run", nargs="?", metavar="RUN", help="id of a run, or its first characters")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _table(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    parser.add_argument(
        "--metric", choices=tuple(METRICS), default="accuracy", help="what to show (default: %(default)s)"
    )
    parser.add_argument(
        "--spread",
        choices=SPREADS,
        default="range",
        help="how to show the differences between seeds: by range, standard deviation, or 95%% confidence interval "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--best", choices=("bold", "none"), default="none", help="bold: mark the best value of each row"
    )
    parser.add_argument("--format", choices=("text", *TABLE_FORMATS), default="text", help=TABLE_FORMAT_HELP)
    parser.add_argument("--caption", metavar="TEXT", help="the caption (default: the name of the file)")
    parser.add_argument("--label", metavar="NAME", help="the name of the table in LaTeX, e.g. tab:attacks")
    _where(parser)


def _where(parser: argparse.ArgumentParser) -> None:
    text = "only runs with these values, e.g. attack=lie,gauss or seed=0 (may be repeated)"
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUES", help=text)


def _export(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    formats = parser.add_mutually_exclusive_group(required=True)
    formats.add_argument("--csv", type=Path, metavar="DIR", help="write CSV files to this folder")
    formats.add_argument("--parquet", type=Path, metavar="DIR", help="write Parquet files to this folder")


def _report(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    text = "file for the report (default: the results file's name, with .html)"
    parser.add_argument("--html", type=Path, metavar="FILE", help=text)


def _watch(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    parser.add_argument(
        "--text", action="store_true", help="print a log in this terminal instead of serving a page"
    )
    parser.add_argument("--once", action="store_true", help="with --text: print the rounds so far, and end")
    text = f"address to listen on (default: {HOST}, which only this machine can reach)"
    parser.add_argument("--host", help=text)
    parser.add_argument("--port", type=whole_number, help=f"port to listen on (default: {PORT})")
    text = "file with the token that visitors must enter; required if other machines can reach --host"
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=text)


def _plot(parser: argparse.ArgumentParser) -> None:
    _results(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the figures")
    parser.add_argument("--format", choices=FIGURE_FORMATS, default="pdf", help=FIGURE_FORMAT_HELP)
    text = f"only this figure: {', '.join(FIGURE_NAMES)} (may be repeated)"
    parser.add_argument(
        "--only",
        type=lambda name: name.replace("-", "_"),
        choices=FIGURE_NAMES,
        action="append",
        default=[],
        metavar="NAME",
        help=text,
    )
    _where(parser)


def _audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("verify",), metavar="verify", help="check every entry of the trail")
    parser.add_argument(
        "trail", type=Path, metavar="FILE", help="the file that was passed as `audit=` to FilteredStrategy"
    )
    text = "a head (number and hash of an entry) that the trail must contain, e.g. 12:3fa9... (may be repeated)"
    parser.add_argument("--head", action="append", default=[], metavar="HEAD", dest="heads", help=text)
    text = "the server's log: the trail must contain every `audit head` in it (may be repeated)"
    parser.add_argument("--log", action="append", default=[], type=Path, metavar="FILE", dest="logs", help=text)
    text = "the server's `state_dir`: the trail must contain the head that is saved there"
    parser.add_argument("--state", type=Path, metavar="DIR", help=text)
