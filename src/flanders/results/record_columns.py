"""The columns of the tables `round` and `client` of the results file.

The columns are made from the fields of `RoundRecord` and `ClientRecord`, which say what happened in a round and to
a client. A new field of these classes automatically becomes a column of the results file and of the export. If the
field has a new type, add this type to `COLUMN_TYPES`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import get_type_hints

from flanders.client_ids import ClientId
from flanders.record import PHASES, ClientRecord, Fate, RoundRecord

Value = int | float | str | None
"""The value of a cell of a table."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    sql: str
    """How the results file declares the column."""
    kind: str
    """The type of the column in an export: `string`, `int64`, `float64` or `bool`."""


COLUMN_TYPES: dict[object, tuple[str, str]] = {
    int: ("INTEGER NOT NULL", "int64"),
    float: ("REAL", "float64"),  # NULL stands for NaN
    str: ("TEXT NOT NULL", "string"),
    bool: ("INTEGER NOT NULL", "bool"),
    bool | None: ("INTEGER", "bool"),
    Fate: ("TEXT NOT NULL", "string"),  # what happened to a client, e.g. "kept" or "dropped"
    ClientId: ("NOT NULL", "string"),  # SQLite keeps numbers as numbers and names as text
}
"""For each type of a field: how the results file declares its column, and the type of the column in an export."""


def _column(name: str, type_: object) -> Column:
    if type_ not in COLUMN_TYPES:
        raise TypeError(
            f"The field {name!r} has the type {type_}, which no column can hold. Add it to COLUMN_TYPES."
        )
    return Column(name, *COLUMN_TYPES[type_])


def _client_columns() -> tuple[Column, ...]:
    types = get_type_hints(ClientRecord)
    return tuple(_column(field.name, types[field.name]) for field in dataclasses.fields(ClientRecord))


def _round_columns() -> tuple[Column, ...]:
    types = get_type_hints(RoundRecord)
    plain = [field.name for field in dataclasses.fields(RoundRecord) if field.name not in ("clients", "seconds")]
    numbers = ("threshold", *PHASES)  # a property of the record, and the keys of `seconds`
    return tuple([_column(name, types[name]) for name in plain] + [_column(name, float) for name in numbers])


CLIENT_COLUMNS = _client_columns()
"""The columns of the table `client` after its columns `run` and `round`: every field of `ClientRecord`."""
ROUND_COLUMNS = _round_columns()
"""The columns of the table `round` after its column `run`: the fields of `RoundRecord`, its threshold, and the
seconds of each phase of the round, e.g. `train`.

The field `clients` has no column, since the table `client` has a row for each client."""


def client_values(record: ClientRecord) -> tuple[Value, ...]:
    """Return the row of a client in the table `client`, in the order of `CLIENT_COLUMNS`."""
    return tuple(to_cell(getattr(record, column.name)) for column in CLIENT_COLUMNS)


def round_values(record: RoundRecord) -> tuple[Value, ...]:
    """Return the row of a round in the table `round`, in the order of `ROUND_COLUMNS`."""
    return tuple(
        to_cell(record.seconds.get(column.name) if column.name in PHASES else getattr(record, column.name))
        for column in ROUND_COLUMNS
    )


def to_cell(value: object) -> Value:
    """Return a value for SQLite. NaN becomes None, a `Fate` becomes a string, a NumPy number a Python number.

    An integer that does not fit into 64 bits becomes text. Characters that UTF-8 cannot encode become question
    marks.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if hasattr(value, "item"):
        return to_cell(value.item())
    if isinstance(value, float):
        return None if math.isnan(value) else value
    raise TypeError(f"A cell holds a number, a text or nothing. Got {value!r} instead.")
