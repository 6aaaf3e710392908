"""The files of an audit trail, in the order in which they were written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flanders.audit.entries import BadEntry, unseal

LONGEST_LINE = 256 * 2**20
"""The most bytes of a line that are read. It has room for a round of a million clients."""


def segments(path: Path) -> list[Path]:
    """Return the files that a trail has filled, the oldest first, without the one that is being written."""
    found = (each for each in path.parent.glob(f"{_escaped(path.name)}.*") if segment_number(each, path))
    return sorted(found, key=lambda each: segment_number(each, path))


def segment_number(file: Path, path: Path) -> int:
    """Return the number of a filled file; 0 if it is none of this trail."""
    found = re.fullmatch(r"([1-9]\d{0,8})", file.name.removeprefix(f"{path.name}."))
    return 0 if found is None else int(found[1])


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, one at a time; nothing if there is no such file. A longer line comes in pieces."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                yield line
    except FileNotFoundError:
        return


def first_entry(path: Path) -> int:
    """Return the number of the first entry of a file; 0 if it cannot be read."""
    try:
        return unseal(next(lines_of(path), b"")).head.entry
    except BadEntry:
        return 0


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
