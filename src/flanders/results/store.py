"""The class `Store`, which writes a results file: runs, their rounds, the clients of each round, and checkpoints.

A process claims a run before it carries out the run (see `flanders.results.claims`). A checkpoint is the state of a
run after a round, from which the run can continue. A checkpoint and the rows of its round are written in one
transaction, so that both belong to the same round. The transaction of the last round also marks the run as done.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flanders.arrays import Array
from flanders.record import RoundRecord
from flanders.results.claims import is_alive, this_process
from flanders.results.record_columns import (
    CLIENT_COLUMNS,
    ROUND_COLUMNS,
    Column,
    Value,
    client_values,
    round_values,
)
from flanders.results.run import Options, RunSpec
from flanders.results.schema import connect, explained, transaction
from flanders.results.spec_keys import is_live
from flanders.state import state_from_bytes, state_to_bytes

PIECE = 64 * 2**20
"""The most bytes of a checkpoint in one row. A larger checkpoint takes several rows, since SQLite limits the size
of a row, by default to 1 GB."""


class ClaimLost(Exception):
    """Another process has claimed the run in the meantime, so this process must not write rounds of the run."""


@dataclass(frozen=True)
class Claimed:
    """A run that this process has claimed and will carry out."""

    spec: RunSpec
    checkpoint: int
    """The round of the last checkpoint, or 0 if there is no checkpoint. The run continues after this round."""


class Store:
    """A results file that is open for writing.

    Several processes may write to one file. Each thread needs a store of its own.

    Parameters
    ----------
    path
        The SQLite file.
    create
        Whether to make the file if it is missing.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = Path(path)
        self.owner = this_process()
        self._connection = connect(self.path, create=create)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def add(self, specs: Iterable[RunSpec], versions: dict[str, str]) -> list[str]:
        """Add runs and return their ids.

        A run that is in the file already is not added again. It gets the new options if it is not done. If the
        new options do not set the number of threads, the run keeps its old number of threads.
        """
        ids = []
        with explained(self.path), transaction(self._connection):
            last = self._connection.execute("SELECT coalesce(max(position), 0) FROM run").fetchone()[0]
            for position, spec in enumerate(specs, start=last + 1):
                known = self._options_and_status(spec.id)
                if known is None:
                    self._connection.execute(
                        "INSERT INTO run (id, position, spec, options, status, created, versions) "
                        "VALUES (?, ?, ?, ?, 'pending', ?, ?)",
                        (spec.id, position, spec.text, spec.options.to_json(), _now(), json.dumps(versions)),
                    )
                elif known[1] != "done":
                    threads = spec.options.threads or Options.from_json(known[0]).threads
                    self._set_options(spec.id, replace(spec.options, threads=threads))
                ids.append(spec.id)
        return ids

    def retry(self, ids: Sequence[str], changes: Mapping[str, Any]) -> None:
        """Change options of the runs `ids`. `changes` has the new values. Runs that are done are not changed.

        Failed runs become pending, so that they can be claimed again.
        """
        with explained(self.path), transaction(self._connection):
            for id_ in ids:
                row = self._options_and_status(id_)
                if row is None or row[1] == "done":
                    continue
                self._set_options(id_, replace(Options.from_json(row[0]), **changes))
                self._connection.execute(
                    "UPDATE run SET status = 'pending' WHERE id = ? AND status = 'failed'", (id_,)
                )

    def reopen(self, id_: str) -> None:
        """Mark a finished run as pending. This is for live federations, which may be started again."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'pending', finished = NULL WHERE id = ? AND status = 'done'", (id_,)
            )

    def unfinished(self, ids: Sequence[str] | None = None) -> list[tuple[RunSpec, str]]:
        """Return the runs that are not done, with their status, in the order in which they were added.

        With `ids`, return only these runs. Live federations are left out.
        """
        with explained(self.path):
            rows = self._connection.execute(
                "SELECT id, spec, options, status FROM run WHERE status != 'done' ORDER BY position"
            ).fetchall()
        wanted = None if ids is None else set(ids)
        found = [(read_run_spec(s, o), status) for id_, s, o, status in rows if wanted is None or id_ in wanted]
        return [(spec, status) for spec, status in found if not spec.live]

    def claim(self, ids: Sequence[str], threads: int = 1, *, live: bool = False) -> Claimed | None:
        """Claim the first of the runs `ids` that can be claimed, or return None if there is none.

        A run can be claimed if it is pending, or if the process that carried it out is dead. If the options of the
        run do not set the number of threads, it is set to `threads`. With `live`, only live federations (real
        clients, in Flower) are claimed. Without `live`, only other runs are claimed.
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
                (checkpoint,) = self._connection.execute(
                    "SELECT coalesce(max(round), 0) FROM checkpoint WHERE run = ?", (id_,)
                ).fetchone()
                claimed = read_run_spec(spec, options)
                if claimed.options.threads is None:
                    claimed = RunSpec(claimed.canonical, replace(claimed.options, threads=threads))
                    self._set_options(id_, claimed.options)
                return Claimed(claimed, checkpoint)
        return None

    def beat(self, id_: str) -> None:
        """Record that this process is still carrying out a run."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET heartbeat = ? WHERE id = ? AND owner = ?", (time.time(), id_, self.owner)
            )

    def release(self, id_: str) -> None:
        """End the claim on a run, so that it can be claimed again."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'pending', owner = NULL WHERE id = ? AND owner = ? AND status = 'running'",
                (id_, self.owner),
            )

    def fail(self, id_: str, error: str, traceback: str) -> None:
        """Mark a run as failed and record why. Its saved rounds stay."""
        with explained(self.path):
            self._connection.execute(
                "UPDATE run SET status = 'failed', owner = NULL, error = ?, traceback = ? "
                "WHERE id = ? AND owner = ?",
                (error, traceback, id_, self.owner),
            )

    def refuse(self, id_: str, error: str) -> None:
        """Mark a run as failed because it cannot be started.

        If another process is carrying out the run, or the run is done, nothing changes.
        """
        with explained(self.path), transaction(self._connection):
            query = "SELECT owner, heartbeat FROM run WHERE id = ? AND status = 'running'"
            running = self._connection.execute(query, (id_,)).fetchone()
            if running is None or not is_alive(*running):
                self._connection.execute(
                    "UPDATE run SET status = 'failed', owner = NULL, error = ?, traceback = NULL "
                    "WHERE id = ? AND status != 'done'",
                    (error, id_),
                )

    def write_round(self, id_: str, record: RoundRecord, *, state: object = None, last: bool = False) -> None:
        """Write a round; see `write_rounds`."""
        self.write_rounds(id_, [record], state=state, last=last)

    def write_rounds(
        self, id_: str, records: Sequence[RoundRecord], *, state: object = None, last: bool = False
    ) -> None:
        """Write rounds in one transaction.

        `state` is the state of the run after the last of these rounds, or the bytes of this state. It becomes the
        checkpoint of the run. By default, there is no new checkpoint. With `last`, the run is marked as done. A
        round that is already in the file is replaced, since a resumed run repeats the rounds after its last
        checkpoint.
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
        """Return the state in the checkpoint of a run; see `flanders.state.load_state` for `like`."""
        return state_from_bytes(self.read_checkpoint_bytes(id_), like)

    def read_checkpoint_bytes(self, id_: str) -> bytes:
        """Return the bytes of the state in the checkpoint of a run."""
        with explained(self.path):
            query = "SELECT state FROM checkpoint WHERE run = ? ORDER BY part"
            return b"".join(piece for (piece,) in self._connection.execute(query, (id_,)))

    def compact(self) -> None:
        """Free the disk space of old checkpoints. If another process is writing, nothing is freed."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA busy_timeout=0")
            self._connection.executescript("PRAGMA incremental_vacuum")  # `execute` would free only one page

    def _options_and_status(self, id_: str) -> tuple[str, str] | None:
        found: tuple[str, str] | None = self._connection.execute(
            "SELECT options, status FROM run WHERE id = ?", (id_,)
        ).fetchone()
        return found

    def _set_options(self, id_: str, options: Options) -> None:
        self._connection.execute("UPDATE run SET options = ? WHERE id = ?", (options.to_json(), id_))

    def _check_claim(self, id_: str) -> None:
        owner = self._connection.execute("SELECT owner FROM run WHERE id = ?", (id_,)).fetchone()
        if owner is None or owner[0] != self.owner:
            raise ClaimLost(f"Another process has taken over run {id_}.")

    def _write_rows(self, id_: str, record: RoundRecord) -> None:
        self._connection.execute("DELETE FROM client WHERE run = ? AND round = ?", (id_, record.number))
        self._insert("INSERT OR REPLACE INTO round", {"run": id_}, ROUND_COLUMNS, [round_values(record)])
        clients = [client_values(client) for client in record.clients]
        self._insert("INSERT INTO client", {"run": id_, "round": record.number}, CLIENT_COLUMNS, clients)

    def _insert(
        self, verb: str, keys: Mapping[str, Value], columns: Sequence[Column], rows: Iterable[tuple[Value, ...]]
    ) -> None:
        """Insert rows with the SQL command `verb`. All rows get the values of `keys` in their first columns."""
        names = [*keys, *(column.name for column in columns)]
        marks = ", ".join("?" * len(names))
        self._connection.executemany(
            f"{verb} ({', '.join(names)}) VALUES ({marks})", [(*keys.values(), *row) for row in rows]
        )

    def _write_checkpoint(self, id_: str, number: int, pieces: Sequence[bytes]) -> None:
        self._connection.execute("DELETE FROM checkpoint WHERE run = ?", (id_,))
        self._connection.executemany(
            "INSERT INTO checkpoint VALUES (?, ?, ?, ?)",
            [(id_, part, number, piece) for part, piece in enumerate(pieces)],
        )


def read_run_spec(spec: str, options: str) -> RunSpec:
    """Return a run from the columns `spec` and `options` of the table `run`."""
    return RunSpec(json.loads(spec), Options.from_json(options))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _pieces(state: object) -> list[bytes]:
    data = state if isinstance(state, bytes) else state_to_bytes(state)
    return [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
