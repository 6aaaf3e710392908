"""Exports a results file as CSV or Parquet, for the command `flanders export`.

There is one file for runs, one for rounds and one for clients.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from flanders.extras import needing
from flanders.files import atomic, check_target, writing
from flanders.results.record_columns import CLIENT_COLUMNS, ROUND_COLUMNS, Value
from flanders.results.schema import reading
from flanders.results.tree import flatten

BATCH = 100_000
"""How many rows are in memory at a time. These rows take about 100 MB."""
RUN = ("id", "status", "created", "finished", "error", "versions")
"""The columns of the table `run` that are exported as they are. The spec, which describes a run, is exported with a
column for each of its keys."""
ROUND = {"run": "string", **{column.name: column.kind for column in ROUND_COLUMNS}}
"""The columns of the export of rounds, and their types."""
CLIENT = {"run": "string", "round": "int64", **{column.name: column.kind for column in CLIENT_COLUMNS}}
"""The columns of the export of clients, and their types."""
ORDER = {"round": "t.number", "client": "t.round, t.client"}
"""For each table, the order of its rows within a run. The query calls the table t."""
Batches = Iterator[list[tuple[Value, ...]]]
"""The rows of a table, a batch at a time."""
Write = Callable[[BinaryIO, Mapping[str, str], Batches], None]
"""A function that writes a table. Its arguments are the open file, the columns with their types, and the rows."""


def export_csv(results: Path, folder: Path) -> list[Path]:
    """Write `run.csv`, `round.csv` and `client.csv` into a folder, and return their paths.

    Each key of the specs, e.g. `threat.attack.name`, is a column of `run.csv`.
    """

    def write(file: BinaryIO, columns: Mapping[str, str], batches: Batches) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        for rows in batches:
            writer.writerows(rows)
        text.detach()  # flushes the text, and leaves the file open

    return _export(results, folder, "csv", write)


def export_parquet(results: Path, folder: Path) -> list[Path]:
    """Write `run.parquet`, `round.parquet` and `client.parquet`, like `export_csv`. This needs pyarrow."""
    with needing("parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}

    def write(file: BinaryIO, columns: Mapping[str, str], batches: Batches) -> None:
        schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
        with pq.ParquetWriter(file, schema) as writer:
            for rows in batches:
                arrays = [
                    pa.array([_typed(row[i], kind) for row in rows], types[kind])
                    for i, kind in enumerate(columns.values())
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))

    return _export(results, folder, "parquet", write)


def _export(results: Path, folder: Path, ending: str, write: Write) -> list[Path]:
    written = []
    with reading(Path(results)) as connection, writing(folder):
        connection.execute("BEGIN")  # all three tables are read as they were at one moment
        for name, columns, batches in _tables(connection):
            path = folder / f"{name}.{ending}"
            check_target(path)
            with atomic(path) as file:
                write(file, columns, batches)
            written.append(path)
    return written


def _tables(connection: sqlite3.Connection) -> Iterator[tuple[str, Mapping[str, str], Batches]]:
    rows = connection.execute(f"SELECT {', '.join(RUN)}, spec FROM run ORDER BY position").fetchall()
    specs = [flatten(json.loads(row[-1])) for row in rows]
    keys = sorted({key for spec in specs for key in spec})
    table = [(*row[:-1], *(_text(spec.get(key)) for key in keys)) for row, spec in zip(rows, specs, strict=True)]
    yield "run", dict.fromkeys([*RUN, *keys], "string"), iter([table])
    for name, columns in (("round", ROUND), ("client", CLIENT)):
        yield name, columns, _batches(connection, name, columns)


def _batches(connection: sqlite3.Connection, name: str, columns: Mapping[str, str]) -> Batches:
    cursor = connection.execute(
        f"SELECT {', '.join(f't.{column}' for column in columns)} FROM {name} AS t JOIN run ON run.id = t.run "
        f"ORDER BY run.position, {ORDER[name]}"
    )
    while rows := cursor.fetchmany(BATCH):
        yield rows


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _typed(value: Value, kind: str) -> Value:
    if value is None:
        return None
    return str(value) if kind == "string" else bool(value) if kind == "bool" else value
