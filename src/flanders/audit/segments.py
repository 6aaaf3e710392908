"""Functions that find and read the files of an audit trail.

A trail is written to the file `PATH`. When this file is full, it is renamed, and the trail continues in a new file
at `PATH`. The full files are the segments of the trail: `PATH.1` is the first, `PATH.2` the second and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from flanders.audit.entries import BadEntry, unseal

LONGEST_LINE = 256 * 2**20
"""The most bytes that are read as one line. The entry of a round with a million clients is shorter. A file that is
no trail may be a single line, too long for the memory."""


def segments(path: Path) -> list[Path]:
    """Return the full files of the trail at `path`, the oldest first. The file at `path` itself is left out."""
    full = (file for file in path.parent.glob(f"{_escaped(path.name)}.*") if segment_number(file, path))
    return sorted(full, key=lambda file: segment_number(file, path))


def segment_number(file: Path, path: Path) -> int:
    """Return the number at the end of the name of a full file; 0 if `file` is not a full file of this trail."""
    match = re.fullmatch(r"([1-9]\d{0,8})", file.name.removeprefix(f"{path.name}."))
    return 0 if match is None else int(match[1])


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; none if it is missing. A line longer than `LONGEST_LINE` is yielded in pieces."""
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
    """Return a file name as a pattern for `glob` that matches only this name."""
    return re.sub(r"([*?[])", r"[\1]", name)
