"""The live log of `flanders watch`: prints each round of a results file to the terminal.

A round has a line with its numbers. Further lines say which clients were not kept, and why. The last lines are the
alarms of the round: what a person should look at.
"""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
import sys
import textwrap
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from flanders.alarms import Alarm, Lookout, names_in_words
from flanders.plain_text import printable
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.results.labels import labels
from flanders.results.rounds import read_rounds
from flanders.results.schema import ResultsError, reading
from flanders.results.store import read_run_spec

PAUSE = 0.5
"""Seconds between two reads of the file. A person who reads along does not notice this delay."""
PATIENCE = 2.0
"""Seconds for which a round without an accuracy is held back. A Flower server measures the accuracy after the round
was written."""
EARLIER = 5
"""If a run has rounds already when the log begins, only the last few of them are shown, to keep the log short."""
MOST_REASONS = 4
"""For one round, at most this many different reasons are shown, so that the log stays short."""
WIDTH = 80
"""The width of the lines in characters, if the width of the terminal is unknown."""
HEADER = "round  accuracy    kept  dropped  refused  banned  silent"
"""The heading of the lines with the numbers of rounds."""
NUMBERS = re.compile(r"\d[\d.,e+-]*")
"""Matches a number. Reasons that differ only in their numbers count as the same reason."""


def watch_log(path: Path, *, once: bool = False) -> None:
    """Print the rounds of a results file while it is written. With `once`, print the last rounds and return."""
    log = Log(Path(path))
    while True:
        for line in log.news(hold=not once):
            print(line)
        sys.stdout.flush()
        if once:
            return
        time.sleep(PAUSE)


class Log:
    """Turns the new rounds of a results file into lines of text.

    Parameters
    ----------
    path
        The results file. It need not exist at first.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said: dict[str, str] = {}  # the last printed status of each run
        self._last: dict[str, int] = {}  # the number of the last printed round of each run
        self._lookouts: dict[str, Lookout] = {}  # finds the alarms of each run
        self._held: dict[str, float] = {}  # for each run: when its last round began to be held back
        self._shown = ""  # the run whose rounds were printed last
        self._problem = ""  # the last printed problem with the file

    def news(self, *, hold: bool = True) -> list[str]:
        """Return the lines about what is new since the last call.

        With `hold`, the last round of a running run is held back for `PATIENCE` seconds if it has no accuracy.
        """
        try:
            with reading(self._path) as connection:
                connection.execute("BEGIN")
                rows = connection.execute(
                    "SELECT id, spec, options, status, error FROM run ORDER BY position"
                ).fetchall()
                names = labels([read_run_spec(row[1], row[2]).canonical for row in rows])
                lines = [
                    line
                    for (id_, _, _, status, error), name in zip(rows, names, strict=True)
                    for line in self._news_of(connection, id_, printable(name), status, error, hold)
                ]
            self._problem = ""
            return lines
        except ResultsError as error:
            before, self._problem = self._problem, str(error)
            return [] if before == self._problem else wrapped(f"{error} Waiting.")

    def _news_of(
        self, connection: sqlite3.Connection, id_: str, name: str, status: str, error: str | None, hold: bool
    ) -> Iterator[str]:
        before = self._said.get(id_)
        if before == status == "done":
            return
        new, left_out = self._read(connection, id_, hold=hold and status == "running", all_=before is not None)
        if before != status or (new and self._shown != id_):
            yield ""
            yield from wrapped(f"{name}: {status}" + (f", {printable(error)}" if error else ""))
        if new:
            if self._shown != id_ or before is None:
                yield HEADER
                self._shown = id_
            if left_out:
                yield f"  ... {left_out} earlier round{'s' * (left_out != 1)}"
            for record, alarms in new:
                yield from round_lines(record, alarms)
        self._said[id_] = status

    def _read(
        self, connection: sqlite3.Connection, id_: str, *, hold: bool, all_: bool
    ) -> tuple[Sequence[tuple[RoundRecord, tuple[Alarm, ...]]], int]:
        """Return the new rounds with their alarms, and the number of new rounds that are left out.

        With `all_`, no round is left out. Without it, only the last `EARLIER` rounds are returned.
        """
        lookout = self._lookouts.setdefault(id_, Lookout())
        new: deque[tuple[RoundRecord, tuple[Alarm, ...]]] = deque(maxlen=None if all_ else EARLIER)
        count, rounds = 0, read_rounds(connection, id_, self._last.get(id_, 0))
        record = next(rounds, None)
        while record is not None:
            following = next(rounds, None)
            if following is None and hold and self._waits(id_, record):
                break
            new.append((record, lookout.look(record)))
            self._last[id_], count, record = record.number, count + 1, following
        return new, count - len(new)

    def _waits(self, id_: str, record: RoundRecord) -> bool:
        """Whether to hold a round back, since its accuracy may still be measured."""
        if not math.isnan(record.accuracy):
            self._held.pop(id_, None)
            return False
        began = self._held.setdefault(id_, time.monotonic())
        if time.monotonic() - began < PATIENCE:
            return True
        del self._held[id_]
        return False


def round_lines(record: RoundRecord, alarms: Sequence[Alarm]) -> Iterator[str]:
    """Yield the lines of one round: its numbers, which clients were not kept and why, and its alarms."""
    counts = record.counts
    accuracy = "-" if math.isnan(record.accuracy) else f"{record.accuracy:.4f}"
    rest = f"{counts[Fate.DROPPED]:9}{counts[Fate.REFUSED]:9}{counts[Fate.BANNED]:8}{counts[Fate.SILENT]:8}"
    yield f"{record.number:5}  {accuracy:>8}{counts[Fate.KEPT]:8}{rest}"
    groups: dict[tuple[Fate, str], list[ClientRecord]] = {}
    for client in record.clients:
        if client.fate is not Fate.KEPT:
            groups.setdefault((client.fate, NUMBERS.sub("#", client.reason)), []).append(client)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (fate, _), clients in ordered[:MOST_REASONS]:
        reason = printable(clients[0].reason, 200) or "no reason was given"
        yield from wrapped(f"{fate} {names_in_words([client.client for client in clients])}: {reason}", "       ")
    if len(ordered) > MOST_REASONS:
        yield f"       and {len(ordered) - MOST_REASONS} other reasons"
    if record.note:
        yield from wrapped(printable(record.note, 300), "       ")
    for alarm in alarms:
        yield from wrapped(f"ALARM: {alarm.text}", "  !!   ")


def wrapped(text: str, margin: str = "") -> list[str]:
    """Return a text as lines that fit into the terminal. The first line begins with the margin.

    The other lines are indented by two more characters.
    """
    width = max(40, shutil.get_terminal_size((WIDTH, 24)).columns)
    rest = margin.replace("!", " ")
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=f"{rest}  ") or [margin]
