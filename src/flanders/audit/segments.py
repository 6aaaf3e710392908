"""Functions that find and read the files of an audit trail.

When the file of a trail is full, it is renamed to `PATH.1`, the next one to `PATH.2` and so on. The trail continues
in a new file at `PATH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flanders.audit.entries import BadEntry, unseal

LONGEST_LINE = 256 * 2**20
"""The most bytes that are read as one line. A round of a million clients fits into it."""


def segments(path: Path) -> list[Path]:
    """Return the full files of the trail at `path`, the oldest first. The file at `path` itself is left out."""
    found = (each for each in path.parent.glob(f"{_escaped(path.name)}.*") if segment_number(each, path))
    return sorted(found, key=lambda each: segment_number(each, path))


def segment_number(file: Path, path: Path) -> int:
    """Return the number at the end of the name of a full file; 0 if `file` is not a full file of this trail."""
    found = re.fullmatch(r"([1-9]\d{0,8})", file.name.removeprefix(f"{path.name}."))
    return 0 if found is None else int(found[1])


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; nothing if there is no such file. A line that is too long is yielded in pieces."""
    try:
        with open(path, "rb") as file:
            while line := file.readline(LONGEST_LINE):
                yield line
    except FileNotFoundError:
        return


def first_entry(path: Path) -> int:
    """Return the number of the first entry of a file; 0 if the entry cannot be read."""
    try:
        return unseal(next(lines_of(path), b"")).head.entry
    except BadEntry:
        return 0


def _escaped(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)
