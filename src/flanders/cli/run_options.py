"""The options that are common to all commands that carry out runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from flanders.extras import needing

if TYPE_CHECKING:
    from flanders.experiments.execution import OptionChanges, Workforce


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add to a command's parser the options that are common to all commands with runs."""
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="folder with the datasets (default: $FLANDERS_DATA)"
    )
    parser.add_argument("--device", metavar="NAME", help="where to compute: auto, cpu or cuda")
    parser.add_argument(
        "--jobs",
        type=whole_number,
        default=1,
        metavar="N",
        help="number of processes that work at the same time (default: %(default)s)",
    )
    parser.add_argument(
        "--on", choices=("ray",), metavar="ray", help="carry out the runs on the machines of a Ray cluster"
    )
    parser.add_argument(
        "--gpus-per-run", type=float, metavar="N", help="with --on ray: GPUs for each run, e.g. 0.25 (default: 1)"
    )


def whole_number(text: str) -> int:
    """Return the number that an argument of the command line is. Raise an error if it is no whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a whole number") from None


def option_changes(options: argparse.Namespace) -> OptionChanges:
    """Return the options that the command line sets for all runs. They replace the options in the specs."""
    changes: OptionChanges = {}
    if options.data_dir is not None:
        changes["data_dir"] = options.data_dir.absolute()
    if options.device is not None:
        changes["device"] = options.device
    return changes


def workforce_of(options: argparse.Namespace) -> Workforce:
    """Return what carries out the runs, as the command line says: a number of processes, or a cluster."""
    with needing("sim"):
        from flanders.experiments.execution import Workforce

    return Workforce(options.jobs, options.on == "ray", options.gpus_per_run)
