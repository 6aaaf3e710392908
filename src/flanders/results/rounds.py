"""Reads the rounds of a run from a results file, as `RoundRecord` objects. Reports and `flanders watch` use it."""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from flanders.record import PHASES, ClientRecord, Fate, RoundRecord
from flanders.results.record_columns import CLIENT_COLUMNS, ROUND_COLUMNS, Column
from flanders.results.schema import ResultsError

_FATES = {str(fate): fate for fate in Fate}
ROUND_FIELDS = [column for column in ROUND_COLUMNS if column.name not in ("threshold", *PHASES)]
"""The columns of the table `round` that are fields of `RoundRecord`. The number of the round comes first."""


def read_rounds(connection: sqlite3.Connection, run: str, after: int = 0) -> Iterator[RoundRecord]:
    """Yield the rounds of a run after round `after`, in order.

    Only one round is in memory at a time. Call this function inside a transaction. Otherwise another process could
    write after the rounds are read and before their clients are read.
    """
    names = ", ".join([*(column.name for column in ROUND_FIELDS), *PHASES])
    query = f"SELECT {names} FROM round WHERE run = ? AND number > ? ORDER BY number"
    rounds = connection.execute(query, (run, after))
    names = ", ".join(["round", *(column.name for column in CLIENT_COLUMNS)])
    query = f"SELECT {names} FROM client WHERE run = ? AND round > ? ORDER BY round"
    groups = itertools.groupby(connection.execute(query, (run, after)), key=lambda row: row[0])
    try:
        waiting = next(groups, None)
        for values in rounds:
            number, clients = values[0], list[ClientRecord]()
            while waiting is not None and waiting[0] <= number:
                if waiting[0] == number:
                    columns = _converted(CLIENT_COLUMNS, [row[1:] for row in waiting[1]])
                    clients = list(itertools.starmap(ClientRecord, zip(*columns, strict=True)))
                waiting = next(groups, None)
            yield _round(values, clients)
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(
            f"Run {run} has a row that cannot be read ({type(error).__name__}: {error}). "
            "Restore the file from a copy."
        ) from error


def _round(values: Sequence[Any], clients: Sequence[ClientRecord]) -> RoundRecord:
    fields, seconds = values[: len(ROUND_FIELDS)], values[len(ROUND_FIELDS) :]
    plain = [column[0] for column in _converted(ROUND_FIELDS, [fields])]
    return RoundRecord(
        clients=tuple(clients),
        seconds={phase: float(value) for phase, value in zip(PHASES, seconds, strict=True) if value is not None},
        **{column.name: value for column, value in zip(ROUND_FIELDS, plain, strict=True)},
    )


def _converted(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return the columns of some rows, with the types that the fields of the records have.

    In a column of numbers, an empty cell becomes NaN. A name of a `Fate` (what happened to a client) becomes the
    `Fate`.
    """
    converted: list[list[Any]] = []
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        if column.name == "fate":
            converted.append([_FATES[value] for value in values])
        elif column.kind == "float64":
            converted.append([math.nan if value is None else float(value) for value in values])
        elif column.kind == "bool":
            converted.append([None if value is None else bool(value) for value in values])
        else:
            converted.append(list(values))
    return converted
