"""The Python types of a spec. A spec describes a run, and consists of tables inside tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = Mapping[str, Any]
"""A spec, or a table of it, that is only read. Its values are numbers, texts, lists, tables, or None."""
Table = dict[str, Any]
"""A spec, or a table of it, that may be changed."""


def flatten(table: Tree, prefix: str = "") -> Table:
    """Return one flat table with all values of a table and of the tables inside it. Its keys have dots.

    Examples
    --------
    >>> flatten({"threat": {"attack": {"name": "lie"}, "start": 2}, "fallback": None})
    {'threat.attack.name': 'lie', 'threat.start': 2, 'fallback': None}
    """
    flat: Table = {}
    for key, value in table.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
