"""Hides unsound rows of a results file: rows that this package cannot have written.

A results file may come from somebody else. Code that reads the file sees only the sound rows. So a run with a wrong
value does not make the other runs unreadable. In all texts of the file, characters that control a terminal are
replaced.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from flanders.record import Fate
from flanders.results import spec_keys
from flanders.results.record_columns import CLIENT_COLUMNS, ROUND_COLUMNS, Column
from flanders.results.tree import flatten

log = logging.getLogger("flanders")
TYPES = {
    "string": ("text",),
    "int64": ("integer",),
    "float64": ("real", "integer", "null"),
    "bool": ("integer", "null"),
}
"""For each kind of column, the types of SQLite that a sound cell may have."""
SOUND_RUN = """
typeof(id) = 'text' AND typeof(position) = 'integer' AND typeof(created) = 'text'
AND status IN ('pending', 'running', 'done', 'failed')
AND typeof(finished) IN ('text', 'null') AND typeof(error) IN ('text', 'null')
AND typeof(traceback) IN ('text', 'null') AND typeof(versions) IN ('text', 'null')
AND rowid NOT IN (SELECT number FROM temp.unsound)
"""
"""The SQL condition for a sound row of the table `run`. `temp.unsound` has the row numbers of unsound specs."""
ADDED = ("source_accuracy",)
"""The columns of the table `round` that were added in format 5. In files of format 4 they are read as empty."""
LONGEST_SPEC = 2**20
"""The most characters of a sound spec. Specs that this package writes have at most a few thousand characters."""


def hide_unsound_rows(connection: sqlite3.Connection, path: Path) -> None:
    """For each table, create a temporary view of the same name that shows only the sound rows.

    SQLite looks for temporary names first. So a query that names a table reads the view.
    """
    connection.execute("CREATE TEMP TABLE unsound (number)")
    rows = connection.execute("SELECT rowid, spec FROM main.run")
    unsound = [(number,) for number, spec in rows if not is_sound(spec)]
    connection.executemany("INSERT INTO temp.unsound VALUES (?)", unsound)
    if unsound:
        log.error("%s: %s runs are left out: their specs are not what flanders writes", path, len(unsound))
    conditions = {
        "run": SOUND_RUN,
        "round": _condition(ROUND_COLUMNS),
        "client": f"(run, round) IN (SELECT run, number FROM temp.round) AND {_condition(CLIENT_COLUMNS)}",
    }
    empty = "".join(f", NULL AS {name}" for name in missing_columns(connection))
    for table, condition in conditions.items():
        rows_of = f"(SELECT *{empty} FROM main.round)" if table == "round" and empty else f"main.{table}"
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM {rows_of} WHERE {condition}")


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Return the columns that are missing in the table `round`, because the file has an older format."""
    present = {name for _, name, *_ in connection.execute("PRAGMA main.table_info(round)")}
    return [name for name in ADDED if name not in present]


def readable_text(text: bytes) -> str:
    r"""Return a text of the file, with question marks in place of characters that control a terminal.

    Examples
    --------
    >>> readable_text(b"out of\x1b[2J memory")
    'out of?[2J memory'
    """
    decoded = text.decode(errors="replace")
    if decoded.isprintable():
        return decoded
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in decoded)


def is_sound(spec: object) -> bool:
    """Whether a spec, the description of a run, is sound.

    A sound spec is not too long. Its texts are printable. All functions that read specs work with it.
    """
    if not isinstance(spec, str) or len(spec) > LONGEST_SPEC:
        return False
    try:
        tree = json.loads(spec)
        flat = spec_keys.flat_spec(tree)
        spec_keys.label(tree)
        spec_keys.attack_start(tree)
        spec_keys.num_rounds(tree)
        if not spec_keys.is_live(tree):
            spec_keys.client_counts(flat)
        return all(str(part).isprintable() for item in flatten(tree).items() for part in item)
    except Exception:  # a foreign spec may be wrong in any way
        return False


def _condition(columns: Iterable[Column]) -> str:
    """Return an SQL condition: all cells of a row have the types that this package writes."""
    parts = []
    for column in columns:
        types = ("text", "integer") if column.name == "client" else TYPES[column.kind]
        parts.append(f"typeof({column.name}) IN ({', '.join(map(repr, types))})")
        if column.name == "fate":
            parts.append(f"fate IN ({', '.join(repr(str(fate)) for fate in Fate)})")
    return " AND ".join(parts)
