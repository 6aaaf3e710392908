"""Prints the check of an audit trail, for the command `flanders audit verify`.

An audit trail is a file in which a server writes down what it decided in each round. Each entry holds the hash of
the entry before it. The number and the hash of an entry are called its *head*. The server also writes the heads to
its log. If the file is changed later, its heads differ from the heads in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from flanders.audit import Head, TrailCheck
from flanders.audit.verification import heads_in_log
from flanders.checks import InputError

BREACHES_SHOWN = 20
"""The most breaches that are printed, so that they fit on a screen.

A breach is a place where the trail was changed.
"""


def heads_in_logs(paths: Iterable[Path]) -> list[Head]:
    """Return all heads in these logs of the server."""
    heads: list[Head] = []
    for path in paths:
        try:
            heads_here = heads_in_log(path.read_text(errors="replace"))
        except OSError as error:
            raise InputError(f"The log {path} cannot be read: {error.strerror or error}.") from error
        if not heads_here:
            raise InputError(f"The log {path} names no `audit head`. Is it the log of a server with `audit=`?")
        heads += heads_here
    return heads


def print_check(check: TrailCheck, path: Path, heads: Sequence[Head]) -> None:
    """Print the result of a check. `heads` are the heads that the trail was compared with."""
    for breach in check.breaches[:BREACHES_SHOWN]:
        print(breach)
    more = len(check.breaches) + check.more_breaches - BREACHES_SHOWN
    if more > 0:
        print(f"... and {more} more")
    for note in check.notes:
        print(f"note: {note}")
    what = f"{path}: {check.entries} entries, {check.rounds} rounds"
    print(f"{what}, {'intact' if check.intact else 'NOT INTACT'}. Head: {check.head}")
    if check.intact and not heads:
        print(
            "The file alone does not show whether entries were removed from its end, or whether all of it was "
            "written anew. Compare it with --head, --log or --state."
        )
