"""The results file: its tables, how it is opened, and what its errors mean."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from flanders.checks import InputError

FORMAT = 3
APPLICATION = 0x464C4452  # "FLDR"
BUSY = 30.0
"""Seconds to wait for another process that is writing."""
LOG = 64 * 2**20
"""Bytes to which the write-ahead log is cut back once it has been copied into the file."""

TABLES = """
CREATE TABLE run (
    id TEXT PRIMARY KEY,           -- first 16 hex digits of the SHA-256 of `spec`
    position INTEGER NOT NULL,     -- order in which the runs were asked for
    spec TEXT NOT NULL,            -- canonical JSON
    options TEXT NOT NULL,         -- device, chunk, threads, data_dir, checkpoint_every: how, not what
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed')),
    owner TEXT,                    -- the process at work on it
    heartbeat REAL,                -- when it last said so, seconds since 1970
    created TEXT NOT NULL,
    finished TEXT,
    error TEXT,
    traceback TEXT,
    versions TEXT                  -- JSON: flanders, numpy, torch, python, platform
);
CREATE TABLE round (
    run TEXT NOT NULL REFERENCES run (id),
    number INTEGER NOT NULL,       -- from 1
    accuracy REAL, loss REAL,
    attack_success REAL,           -- NULL where nothing is aimed at
    threshold REAL,                -- largest score that was kept
    train REAL, attack REAL, filter REAL, aggregate REAL, evaluate REAL,  -- seconds
    note TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE client (
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    client NOT NULL,
    fate TEXT NOT NULL,            -- kept, dropped, refused, banned or silent
    score REAL, probability REAL,  -- NULL where there was none
    reason TEXT NOT NULL,          -- why the client was not kept, in words
    malicious INTEGER,             -- NULL where nobody knows
    PRIMARY KEY (run, round, client),
    FOREIGN KEY (run, round) REFERENCES round (run, number)
) WITHOUT ROWID;
CREATE TABLE checkpoint (          -- the last one of each unfinished run, in pieces
    run TEXT NOT NULL REFERENCES run (id),
    part INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (run, part)
);
"""


class ResultsError(InputError):
    """The results file cannot be used; nothing that was in it is lost."""


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a results file for reading and writing; an empty or new one is given its tables.

    Write-ahead logging lets readers read while a run writes. `synchronous=FULL` flushes the log at
    every commit: with NORMAL a power cut could undo rounds that were already reported as saved, and
    one flush a round costs little.
    """
    if not create and not path.exists():
        raise ResultsError(f"There are no results at {path}. `flanders run SPEC --out {path}` makes them.")
    if path.is_dir():
        raise ResultsError(f"{path} is a folder. Name a file in it, e.g. {path / 'results.sqlite'}.")
    with explained(path):
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing results file to read from it, never to write; inside, errors say what they mean."""
    with explained(path), contextlib.closing(_connect_for_reading(path)) as connection:
        yield connection


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise ResultsError(f"There are no results at {path}. `flanders run SPEC --out {path}` makes them.")
    if path.is_dir():
        raise ResultsError(f"{path} is a folder. Name the results file in it.")
    if not os.access(path, os.R_OK):
        raise ResultsError(f"{path} cannot be read: no permission.")
    # Who may write opens the file as a writer would, so that the log goes away when the last one closes it.
    writable = os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=rw" if writable else "mode=ro" if log.exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY, isolation_level=None)
    try:
        connection.execute("PRAGMA query_only=1")
        _check_format(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # so that old checkpoints can give back their space
    connection.execute(f"PRAGMA journal_size_limit={LOG}")
    if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
        raise ResultsError(f"{path} is on a file system without shared memory. Put the results on a local disk.")
    with transaction(connection):
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            for statement in TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
    _check_format(connection, path)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        raise ResultsError(f"{path} is empty: there are no results in it yet.")
    if application != APPLICATION:
        raise ResultsError(f"{path} is a database, but not one of results. Name another file.")
    if version != FORMAT:
        raise ResultsError(
            f"{path} has the format {version}; this version of flanders reads {FORMAT}. Name another file, "
            "or use the version that wrote it."
        )


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Do everything inside, or nothing; the lock is taken at the start, so that nobody's read grows stale."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # a full disk may have rolled back by itself
                connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the disk complain about into what it means and what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise ResultsError(_explain(path, str(error))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResultsError(_explain(path, "database or disk is full")) from error
        raise


def _explain(path: Path, message: str) -> str:
    safe = "Every round that was reported is saved; `flanders resume` goes on from there."
    if "full" in message:
        return f"The disk is full: {path} could not be written. Make room. {safe}"
    if "locked" in message or "busy" in message:
        return f"{path} has been locked by another program for {BUSY:.0f} s. Close that program. {safe}"
    if "readonly" in message or "unable to open" in message:
        folder = path.absolute().parent
        if not folder.is_dir():
            return f"{path} cannot be written: there is no folder {folder}. Make it, or name another."
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            return f"{path} cannot be written: no permission. Choose another place."
        return f"{path} cannot be opened for writing ({message}). Choose another place."
    if "not a database" in message or "malformed" in message:
        return f"{path} is not a readable results file ({message}). Restore it from a copy, or choose another file."
    return f"{path} could not be used: {message}. {safe}"


def without_nan(value: float | None) -> float | None:
    """Return a Python float, or None for NaN, which neither SQLite nor JSON has."""
    return None if value is None or math.isnan(value) else float(value)
