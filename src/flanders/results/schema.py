"""The results file, an SQLite file: its tables, how it is opened, and how its errors are explained.

The module `flanders.results.record_columns` has the columns of the tables `round` and `client`. They say what
happened in each round, and to each client.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from flanders.checks import InputError
from flanders.results.record_columns import CLIENT_COLUMNS, ROUND_COLUMNS, Column
from flanders.results.sound_rows import hide_unsound_rows, missing_columns, readable_text

FORMAT, OLDEST = 5, 4
"""The version of the tables, and the oldest version that can still be used. Files of other versions are refused."""
APPLICATION = 0x464C4452
"""The letters FLDR. SQLite stores them in the file, so that a results file can be recognised."""
BUSY = 30.0
"""How many seconds to wait for another process that is writing. A large checkpoint on a slow disk takes seconds."""
LOG = 64 * 2**20
"""SQLite's write-ahead log is a file beside the results file. After its content has been moved into the results
file, the log is cut to this many bytes. Otherwise it would stay large after one large transaction."""


def _declared(columns: Iterable[Column]) -> str:
    return ",\n    ".join(f"{column.name} {column.sql}" for column in columns)


TABLES = f"""
CREATE TABLE run (
    id TEXT PRIMARY KEY,           -- first 16 hex digits of the SHA-256 of `spec`
    position INTEGER NOT NULL,     -- order in which the runs were added
    spec TEXT NOT NULL,            -- canonical JSON
    options TEXT NOT NULL,         -- JSON: device, chunk, threads, data_dir, checkpoint_every, tf32
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed')),
    owner TEXT,                    -- the process that carries out the run
    heartbeat REAL,                -- when that process last reported, seconds since 1970
    created TEXT NOT NULL,
    finished TEXT,
    error TEXT,
    traceback TEXT,
    versions TEXT                  -- JSON: flanders, numpy, torch, python, platform
);
CREATE TABLE round (               -- one row per round: the fields of a RoundRecord
    run TEXT NOT NULL REFERENCES run (id),
    {_declared(ROUND_COLUMNS)},
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE client (              -- one row per client and round: the fields of a ClientRecord
    run TEXT NOT NULL,
    round INTEGER NOT NULL,
    {_declared(CLIENT_COLUMNS)},
    PRIMARY KEY (run, round, client),
    FOREIGN KEY (run, round) REFERENCES round (run, number)
) WITHOUT ROWID;
CREATE TABLE checkpoint (          -- the state from which each unfinished run can continue, in pieces
    run TEXT NOT NULL REFERENCES run (id),
    part INTEGER NOT NULL,
    round INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (run, part)
);
"""
"""The SQL statements that make the tables."""
NAMES = ("run", "round", "client", "checkpoint")
"""The names of the tables."""


class ResultsError(InputError):
    """The results file is missing, or it cannot be read or written."""


def connect(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a results file for reading and writing. A new or empty file gets its tables.

    The file uses write-ahead logging, so that other processes can read while this process writes. With
    `synchronous=FULL`, each commit is flushed to the disk. With `synchronous=NORMAL`, a power cut could undo rounds
    that were already reported as saved.
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
    """Open an existing results file for reading only. Inside the block, errors of SQLite are explained."""
    with explained(path), contextlib.closing(_connect_for_reading(path)) as connection:
        yield connection


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise ResultsError(f"There are no results at {path}. `flanders run SPEC --out {path}` makes them.")
    if path.is_dir():
        raise ResultsError(f"{path} is a folder. Name the results file in it.")
    if not os.access(path, os.R_OK):
        raise ResultsError(f"{path} cannot be read: no permission.")
    # If this process may write, open the file for writing. SQLite then deletes its log at the last close.
    writable = os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)
    log = path.with_name(f"{path.name}-wal")
    mode = "mode=rw" if writable else "mode=ro" if log.exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY, isolation_level=None)
    connection.text_factory = readable_text
    try:
        _check_format(connection, path)
        hide_unsound_rows(connection, path)
        connection.execute("PRAGMA query_only=1")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # `Store.compact` can then free old checkpoints
    connection.execute(f"PRAGMA journal_size_limit={LOG}")
    if connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
        raise ResultsError(
            f"{path} is on a file system that SQLite cannot use safely. Put the results on a local disk."
        )
    with transaction(connection):
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty:
            for statement in TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
    if _check_format(connection, path) < FORMAT:
        with transaction(connection):
            for name in missing_columns(connection):
                connection.execute(f"ALTER TABLE round ADD COLUMN {name} REAL")
            connection.execute(f"PRAGMA user_version={FORMAT}")


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error if a table is missing, or if there are views or triggers.

    A hostile view could take forever to read.
    """
    entries = connection.execute(
        "SELECT type, name FROM sqlite_master WHERE rootpage > 0 OR type != 'index'"
    ).fetchall()
    foreign = [name for type_, name in entries if type_ not in ("table", "index")]
    missing = [name for name in NAMES if ("table", name) not in entries]
    if foreign or missing:
        what = f"the tables {missing} are missing" if missing else f"it has {len(foreign)} views or triggers"
        raise ResultsError(f"{path} is not a results file that flanders wrote: {what}. Name another file.")


def _check_format(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables. Raise an error if the file cannot be used."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        raise ResultsError(f"{path} is empty: there are no results in it yet.")
    if application != APPLICATION:
        raise ResultsError(f"{path} is a database, but it holds no results of flanders. Name another file.")
    if not OLDEST <= version <= FORMAT:
        raise ResultsError(
            f"{path} has the format {version}; this version of flanders reads {OLDEST} to {FORMAT}. Name another "
            "file, or use the version that wrote it."
        )
    _check_tables(connection, path)
    return int(version)


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Save everything that the block writes, or nothing if the block fails.

    No other process can write until the block ends.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # on a full disk SQLite may have rolled back already
                connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the disk into errors whose messages say what happened and what to do."""
    try:
        yield
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite's message may not be valid text
        raise ResultsError(_explain(path, str(error))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResultsError(_explain(path, "database or disk is full")) from error
        raise


def _explain(path: Path, message: str) -> str:
    safe = "Every round that was reported is saved. `flanders resume` continues the runs."
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
    if "not a database" in message and path.suffix == ".toml":
        return f"{path} is a spec, not a results file. `flanders run {path}` carries out its runs."
    if "not a database" in message or "malformed" in message:
        return f"{path} is not a readable results file ({message}). Restore it from a copy, or choose another file."
    return f"{path} could not be used: {message}. {safe}"
