"""The command line, `flanders`.

The exit code of a command is 0 if it succeeded. It is 1 if a run failed or an audit trail was changed, and 2 if the
input or the results file is wrong. If a signal stopped the command, the exit code is 128 plus the number of the
signal, e.g. 130 after Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence

from flanders.checks import InputError
from flanders.cli.leaderboard import Command
from flanders.cli.parser import make_parser
from flanders.plain_text import printable

__all__ = ["main"]

LONGEST_PATH = 120
"""The most characters of a path in an error of the operating system."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    logging.basicConfig(format="%(message)s", level=logging.ERROR)  # the results file has the warnings of rounds
    try:
        options = make_parser().parse(arguments)
        command: Command = options.command
        return command(options)
    except InputError as error:
        # Messages quote files. A hostile file may contain characters that control the terminal.
        print("flanders:", "\n".join(map(printable, str(error).split("\n"))), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("flanders: interrupted.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # e.g. `flanders show | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # e.g. the name of a file is too long, or a disk cannot be read
        where = f"{printable(error.filename, LONGEST_PATH)} cannot be used: " if error.filename else ""
        print(f"flanders: {where}{error.strerror or error}. Choose another file or folder.", file=sys.stderr)
        return 2
