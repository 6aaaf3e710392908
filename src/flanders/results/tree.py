"""A spec as JSON has it: tables in tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Table = dict[str, Any]


def flatten(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Return all values of a table and of the tables in it under dotted keys.

    Examples
    --------
    >>> flatten({"attack": {"name": "lie", "start": 2}, "poison": None})
    {'attack.name': 'lie', 'attack.start': 2, 'poison': None}
    """
    flat: Table = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
