"""The class `Feed`: reads a results file again and again while it is written, and returns what the live page needs.

A results file is a SQLite database with the rounds of one or more runs. What happened to the clients of a round is
read only once, when the round is new.
"""

from __future__ import annotations

import math
import secrets
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from flanders.report.client_cells import PageData, encode_clients
from flanders.report.compared_runs import ComparedRuns
from flanders.report.payload import CHARACTERS, build_summary
from flanders.report.run_data import MEASURES, RunData
from flanders.report.run_reading import MOST_ROWS, GrowingRun, choose_clients
from flanders.results.record_columns import ROUND_COLUMNS
from flanders.results.rounds import read_rounds
from flanders.results.schema import ResultsError, reading

LOOKED_AT = 4
"""Memory holds what happened to each client for at most this many runs: those that visitors have opened last. The
clients of all runs would take too much memory."""
RECHECK = 5.0
"""Seconds after which the file is read again even if it seems unchanged. Its modification time may be too coarse to
show every change."""
MEASURED_LATER = ("accuracy", "loss", "attack_success", "source_accuracy")
"""The columns of a round that may change after the round was written. A Flower server measures them later."""


class FollowedRun:
    """The part of a run that has been read so far.

    Parameters
    ----------
    id_
        The id of the run.
    most_rows
        The most clients that get a row on the page. With 0, no client gets a row, and only totals are counted.
    """

    def __init__(self, id_: str, most_rows: int) -> None:
        self.id, self._most_rows = id_, most_rows
        self.epoch = ""
        """A random text that changes each time the run is read from its first round again. A page whose rounds have
        an earlier epoch is out of date."""
        self._growing: GrowingRun | None = None  # collects the rounds
        self._fixed: list[tuple[object, ...]] = []  # the values of each round that never change
        self._measures: list[list[float]] = []  # the measured numbers of each round, such as the accuracy
        self._about: tuple[str, str, str | None] | None = None  # the spec, the status and the error
        self.data: RunData | None = None
        """The run so far; None before the first `catch_up`."""

    def catch_up(self, connection: sqlite3.Connection, spec: str, status: str, error: str | None) -> bool:
        """Read the new rounds. Return whether anything has changed.

        `spec`, `status` and `error` are columns of the results file: the description of the run, whether it is
        pending, running, done or failed, and the error that ended it.
        """
        if self._about == (spec, status, error) and status == "done":
            return False
        fixed, measures = self._read_fixed_values(connection)
        known = len(self._fixed)
        if self._growing is None or fixed[:known] != self._fixed:
            self.epoch = secrets.token_hex(4)
            chosen = choose_clients(connection, self.id, self._most_rows) if self._most_rows else None
            self._growing, known = GrowingRun(chosen, self._most_rows), 0
        elif (self._about, self._measures) == ((spec, status, error), measures):
            return False
        after = self._growing.numbers[-1] if self._growing.numbers else 0
        try:
            if len(fixed) > known:
                for record in read_rounds(connection, self.id, after):
                    self._growing.add(record)
        except ResultsError as damage:
            self._growing, fixed, measures = GrowingRun(), [], []
            self._fixed, self._measures, self._about = [], [], (spec, status, error)
            self.data = self._growing.data(self.id, spec, "damaged", str(damage), sort=False)
            return True
        self._growing.replace_measures(measures)
        self._fixed, self._measures, self._about = fixed, measures, (spec, status, error)
        self.data = self._growing.data(self.id, spec, status, error, sort=False)
        return True

    def _read_fixed_values(
        self, connection: sqlite3.Connection
    ) -> tuple[list[tuple[object, ...]], list[list[float]]]:
        """Return two lists with an entry for each round: the values that never change, and the measured numbers.

        If the first list has changed for an old round, the run was started again. `catch_up` then reads the run
        from the start.
        """
        names = [column.name for column in ROUND_COLUMNS]
        query = f"SELECT {', '.join(names)} FROM round WHERE run = ? ORDER BY number"
        rows = connection.execute(query, (self.id,)).fetchall()
        columns = [i for i, name in enumerate(names) if name not in MEASURED_LATER]
        measured = [names.index(name) for name in MEASURES]
        fixed = [tuple(row[i] for i in columns) for row in rows]
        return fixed, [[math.nan if row[i] is None else float(row[i]) for i in measured] for row in rows]


class Feed:
    """Reads a results file while it is written. The file need not exist at first.

    Parameters
    ----------
    path
        The results file.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._boot = secrets.token_hex(4)  # a random text with which each version begins; see `results`
        self._count = 0  # how often the summary was made
        self._runs: dict[str, FollowedRun] = {}  # all runs, without their clients
        self._changed: dict[str, int] = {}  # for each run: the `_count` at its last change
        self._looked_at: OrderedDict[str, FollowedRun] = OrderedDict()  # some runs, with their clients
        self._page: PageData = {}  # the summary
        self._order: list[str] = []  # the ids of the runs, as in the file
        self._signature: tuple[object, ...] = ()
        self._read_at = -math.inf
        self._problem = ""
        self._lock = threading.Lock()

    def results(self, version: str = "") -> PageData:
        """Return the runs that have changed since an earlier answer, and the ids of all runs in order.

        Each answer has a version. The page sends this version with its next request, as `version`. If `version`
        does not come from this object, all runs are returned.
        """
        with self._lock:
            self._refresh()
            boot, _, number = version.partition("-")
            known = boot == self._boot and number.isascii() and number.isdigit() and len(number) < 16
            since = int(number) if known else -1
            runs = {entry["id"]: entry for entry in self._page.get("runs", [])}
            return {
                **{name: self._page.get(name, []) for name in ("columns", "phases")},
                "summary": self._page.get("summary", ""),
                "left_out": "",
                "version": f"{self._boot}-{self._count}",
                "order": list(runs),
                "runs": {id_: entry for id_, entry in runs.items() if self._changed[id_] > since},
                "problem": self._problem,
            }

    def cells(self, id_: str, since: int, until: int, epoch: str) -> PageData | None:
        """Return what happened to the clients of a run, in the rounds from position `since` to `until - 1`.

        The result is None if there is no such run. `epoch` is the epoch of the rounds that the page has. If it is
        not the current epoch of the run, these rounds are out of date. Then all rounds up to position `until - 1`
        are returned.
        """
        with self._lock:
            self._refresh()
            if id_ not in self._runs:
                return None
            run = self._looked_at.setdefault(id_, FollowedRun(id_, MOST_ROWS))
            self._looked_at.move_to_end(id_)
            while len(self._looked_at) > LOOKED_AT:
                self._looked_at.popitem(last=False)
            with reading(self.path) as connection:
                connection.execute("BEGIN")
                row = connection.execute("SELECT spec, status, error FROM run WHERE id = ?", (id_,)).fetchone()
                if row is None:
                    return None
                run.catch_up(connection, *row)
            assert run.data is not None  # set by `catch_up`
            start = min(max(0, since), run.data.rounds.size) if epoch == run.epoch else 0
            cells = encode_clients(run.data, len(run.data.clients), CHARACTERS, start, max(start, until))
            return {**cells, "epoch": run.epoch}

    def _refresh(self) -> None:
        """Read what has changed in the file since the last call."""
        signature = _signature(self.path)
        if signature == self._signature and time.monotonic() - self._read_at < RECHECK:
            return
        try:
            with reading(self.path) as connection:
                connection.execute("BEGIN")
                rows = connection.execute("SELECT id, spec, status, error FROM run ORDER BY position").fetchall()
                changed = [row[0] for row in rows if self._catch_up(connection, *row)]
            problem = (
                ""
                if rows
                else f"{self.path.name} holds no runs yet. The page shows them as soon as they are there."
            )
        except ResultsError as error:
            rows, changed, problem = [], [], str(error)
        gone = self._runs.keys() - {row[0] for row in rows}
        for id_ in gone:
            del self._runs[id_], self._changed[id_]
            self._looked_at.pop(id_, None)
        self._signature, self._read_at = signature, time.monotonic()
        if changed or gone or problem != self._problem:
            self._problem = problem
            self._describe(changed, [row[0] for row in rows])

    def _catch_up(self, connection: sqlite3.Connection, id_: str, *about: str) -> bool:
        run = self._runs.setdefault(id_, FollowedRun(id_, 0))
        return run.catch_up(connection, *about)

    def _describe(self, changed: Sequence[str], order: Sequence[str]) -> None:
        """Make the summary of all runs again, and note which runs have changed.

        If a run was added or removed, all runs count as changed, since the labels of the other runs may change.
        """
        self._count += 1
        data = [run.data for run in (self._runs[id_] for id_ in order) if run.data is not None]
        self._page = build_summary(ComparedRuns(data))
        before = self._order
        self._order = list(order)
        for entry in self._page["runs"]:
            entry["epoch"] = self._runs[entry["id"]].epoch
            if entry["id"] in changed or before != self._order or entry["id"] not in self._changed:
                self._changed[entry["id"]] = self._count


def _signature(path: Path) -> tuple[object, ...]:
    """Return the sizes and times of a results file and of SQLite's log beside it. They change with each write."""
    stamps: list[object] = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = file.stat()
            stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            stamps.append(None)
    return tuple(stamps)
