"""Results in one SQLite file: what each run is, and what each of its rounds came to.

A round's rows and the checkpoint that follows it are written in one transaction, so that they never
disagree, and a run is done in the same transaction as its last round.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flanders.arrays import Array
from flanders.record import PHASES, RoundRecord
from flanders.results.claims import is_alive, me
from flanders.results.run import Options, RunSpec
from flanders.results.schema import connect, explained, transaction, without_nan
from flanders.results.summary import is_live
from flanders.state import load_state, save_state

PIECE = 64 * 2**20
"""Bytes of a checkpoint in one row: SQLite takes at most a thousand million."""


class ClaimLost(Exception):
    """Another process has taken over the run, so this one must leave it alone."""


@dataclass(frozen=True)
class Claimed:
    """A run that this process is to carry out."""

    spec: RunSpec
    checkpoint: int
    """The round to go on after; 0 if there is nothing yet."""


class Store:
    """A results file, opened to write. Several processes may do so at once; each thread needs a store of its own.

    Parameters
    ----------
    path
        The SQLite file.
    create
        Make it if it is not there.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = Path(path)
        self.owner = me()
        self._connection = connect(self.path, create=create)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, specs: Iterable[RunSpec], versions: dict[str, str]) -> list[str]:
        """Enter runs; those already there stay, and unfinished ones take the new options. Return all ids."""
        ids = []
        with explained(self.path), transaction(self._connection):
            last = self._connection.execute("SELECT coalesce(max(position), 0) FROM run").fetchone()[0]
            for position, spec in enumerate(specs, start=last + 1):
                known = self._connection.execute(
                    "SELECT options, status FROM run WHERE id = ?", (spec.id,)
                ).fetchone()
                if known is None:
                    self._connection.execute(
                        "INSERT INTO run (id, position, spec, options, status, created, versions) "
                        "VALUES (?, ?, ?, ?, 'pending', ?, ?)",
                        (spec.id, position, spec.text, _options(spec.options), _now(), json.dumps(versions)),
                    )
                elif known[1] != "done":
                    threads = spec.options.threads or read_options(known[0]).threads
                    self._set_options(spec.id, replace(spec.options, threads=threads))
                ids.append(spec.id)
        return ids

    def retry(self, ids: Sequence[str], changes: dict[str, Any]) -> None:
        """Let failed runs be claimed again, and change the options of all that are not done."""
        with explained(self.path), transaction(self._connection):
            for id_ in ids:
                row = self._options_and_status(id_)
                if row is None or row[1] == "done":
                    continue
                self._set_options(id_, replace(read_options(row[0]), **changes))
                self._connection.execute(
                    "UPDATE run SET status = 'pending' WHERE id = ? AND status = 'failed'", (id_,)
                )

    def reopen(self, id_: str) -> None:
        """Let a run that is done go on, as a live federation may."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'pending', finished = NULL WHERE id = ? AND status = 'done'", (id_,)
            )

    def unfinished(self, ids: Sequence[str] | None = None) -> list[tuple[RunSpec, str]]:
        """Return the runs that are not done, in order, and their status; live federations are left out."""
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT id, spec, options, status FROM run WHERE status != 'done' ORDER BY position"
            ).fetchall()
        wanted = None if ids is None else set(ids)
        found = [(read_spec(s, o), status) for id_, s, o, status in rows if wanted is None or id_ in wanted]
        return [(spec, status) for spec, status in found if not is_live(spec.canonical)]

    def claim(self, ids: Sequence[str], threads: int = 1, *, live: bool = False) -> Claimed | None:
        """Take the next run that nobody is at work on, or None if there is none.

        A run that has not been begun, and does not say otherwise, is to be computed with `threads` threads.
        Live federations are only for those who ask for them: nothing here can carry one out.
        """
        wanted = set(ids)
        with explained(self.path), transaction(self._connection):
            rows = self._connection.execute(
                "SELECT id, spec, options, status, owner, heartbeat FROM run "
                "WHERE status IN ('pending', 'running') ORDER BY position"
            ).fetchall()
            for id_, spec, options, status, owner, heartbeat in rows:
                if id_ not in wanted or is_live(json.loads(spec)) != live:
                    continue
                if status == "running" and is_alive(owner, heartbeat):
                    continue
                self._connection.execute(
                    "UPDATE run SET status = 'running', owner = ?, heartbeat = ?, error = NULL, traceback = NULL "
                    "WHERE id = ?",
                    (self.owner, time.time(), id_),
                )
                found = self._connection.execute(
                    "SELECT coalesce(max(round), 0) FROM checkpoint WHERE run = ?", (id_,)
                ).fetchone()
                claimed = read_spec(spec, options)
                if claimed.options.threads is None:
                    claimed = RunSpec(claimed.canonical, replace(claimed.options, threads=threads))
                    self._set_options(id_, claimed.options)
                return Claimed(claimed, found[0])
        return None

    def beat(self, id_: str) -> None:
        """Say that this process is still at work on a run."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET heartbeat = ? WHERE id = ? AND owner = ?", (time.time(), id_, self.owner)
            )

    def release(self, id_: str) -> None:
        """Leave a run for later."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'pending', owner = NULL WHERE id = ? AND owner = ? AND status = 'running'",
                (id_, self.owner),
            )

    def fail(self, id_: str, error: str, traceback: str) -> None:
        """Record why a run could not go on; what it has saved stays."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'failed', owner = NULL, error = ?, traceback = ? "
                "WHERE id = ? AND owner = ?",
                (error, traceback, id_, self.owner),
            )

    def refuse(self, id_: str, error: str) -> None:
        """Record that a run cannot be begun, unless somebody is at work on it."""
        with explained(self.path), transaction(self._connection):
            query = "SELECT owner, heartbeat FROM run WHERE id = ? AND status = 'running'"
            running = self._connection.execute(query, (id_,)).fetchone()
            if running is None or not is_alive(*running):
                self._connection.execute(
                    "UPDATE run SET status = 'failed', owner = NULL, error = ?, traceback = NULL "
                    "WHERE id = ? AND status != 'done'",
                    (error, id_),
                )

    def write_round(self, id_: str, record: RoundRecord, *, state: Any = None, last: bool = False) -> None:
        """Write a round; see `write_rounds`."""
        self.write_rounds(id_, [record], state=state, last=last)

    def write_rounds(
        self, id_: str, records: Sequence[RoundRecord], *, state: Any = None, last: bool = False
    ) -> None:
        """Write rounds, and with them the state after the last of them if given, or that it ended the run.

        Rounds that are already there, because the run went on from an earlier checkpoint, are replaced.
        """
        with explained(self.path):
            pieces = [] if state is None else _pieces(state)
            with transaction(self._connection):
                self._check_claim(id_)
                for record in records:
                    self._write_rows(id_, record)
                if pieces:
                    self._write_checkpoint(id_, records[-1].number, pieces)
                if last:
                    self._connection.execute(
                        "UPDATE run SET status = 'done', finished = ?, owner = NULL WHERE id = ?", (_now(), id_)
                    )
                    self._connection.execute("DELETE FROM checkpoint WHERE run = ?", (id_,))

    def read_checkpoint(self, id_: str, like: Array = None) -> Any:
        """Return the last state of a run; see `flanders.state.load_state` for `like`."""
        with explained(self.path), tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint.npz"
            with open(path, "wb") as file:
                for (piece,) in self._connection.execute(
                    "SELECT state FROM checkpoint WHERE run = ? ORDER BY part", (id_,)
                ):
                    file.write(piece)
            return load_state(path, like)

    def compact(self) -> None:
        """Give the space of old checkpoints back to the disk, unless somebody else is writing."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout=0")
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page

    def _options_and_status(self, id_: str) -> tuple[str, str] | None:
        found: tuple[str, str] | None = self._connection.execute(
            "SELECT options, status FROM run WHERE id = ?", (id_,)
        ).fetchone()
        return found

    def _set_options(self, id_: str, options: Options) -> None:
        self._connection.execute("UPDATE run SET options = ? WHERE id = ?", (_options(options), id_))

    def _check_claim(self, id_: str) -> None:
        owner = self._connection.execute("SELECT owner FROM run WHERE id = ?", (id_,)).fetchone()
        if owner is None or owner[0] != self.owner:
            raise ClaimLost(f"Another process has taken over run {id_}.")

    def _write_rows(self, id_: str, record: RoundRecord) -> None:
        self._connection.execute("DELETE FROM client WHERE run = ? AND round = ?", (id_, record.number))
        seconds = [record.seconds.get(phase) for phase in PHASES]
        values = [record.accuracy, record.loss, record.attack_success, record.threshold, *seconds]
        self._connection.execute(
            "INSERT OR REPLACE INTO round VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (id_, record.number, *map(without_nan, values), record.note),
        )
        rows = [
            (
                id_,
                record.number,
                c.client,
                c.fate.value,
                without_nan(c.score),
                without_nan(c.probability),
                c.reason,
                c.malicious,
            )
            for c in record.clients
        ]
        self._connection.executemany("INSERT INTO client VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _write_checkpoint(self, id_: str, number: int, pieces: Sequence[bytes]) -> None:
        self._connection.execute("DELETE FROM checkpoint WHERE run = ?", (id_,))
        self._connection.executemany(
            "INSERT INTO checkpoint VALUES (?, ?, ?, ?)",
            [(id_, part, number, piece) for part, piece in enumerate(pieces)],
        )


def read_spec(spec: str, options: str) -> RunSpec:
    """Return a run as the table `run` has it."""
    return RunSpec(json.loads(spec), read_options(options))


def read_options(text: str) -> Options:
    """Return options as the table `run` has them."""
    values = json.loads(text)
    return Options(**{**values, "data_dir": None if values["data_dir"] is None else Path(values["data_dir"])})


def _options(options: Options) -> str:
    return json.dumps(asdict(options), default=str)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _pieces(state: Any) -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.npz"
        save_state(path, state)
        with open(path, "rb") as file:
            return list(iter(lambda: file.read(PIECE), b""))
