"""Runs commands of the command line in this process, for the targets that are files."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from flanders.cli import main

CODES = (0, 1, 2)
"""The exit codes that a command may return."""


class BadOutput(Exception):
    """A command printed characters that control a terminal, or returned an unknown exit code."""


def run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Raise `BadOutput` if it prints characters that control a terminal."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(list(arguments))
        except SystemExit as error:  # argparse raises it after --help
            code = error.code if isinstance(error.code, int) else 2
    printed = out.getvalue() + err.getvalue()
    if code not in CODES:
        raise BadOutput(f"exit code {code}: {printed[-200:]!r}")
    if "\x1b" in printed or "\x07" in printed:
        at = max(printed.find("\x1b"), printed.find("\x07"))
        raise BadOutput(
            f"control characters in the output of {arguments[0]}: {printed[max(at - 80, 0) : at + 40]!r}"
        )
    return code
