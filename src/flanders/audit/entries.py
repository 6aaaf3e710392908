"""The entries of an audit trail, the file in which a server writes down what it decided in each round.

Each entry is a line of JSON. The last field of a line, its hash, is the SHA-256 of everything before this field.
The field `previous` is the hash of the line before. So a person who changes a line must also change all later
lines, or the change is noticed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flanders.checks import InputError

NOTHING = "0" * 64
"""The value of the field `previous` in the first entry: there is no entry before it."""
BEGINNING = b'{"entry":'
"""Every line begins with this."""
SEALED = re.compile(rb'(\{"entry":.*),"hash":"([0-9a-f]{64})"\}\n?', re.DOTALL)
"""Matches a line. The first group is the part of the line that is hashed, and the second group is the hash."""


@dataclass(frozen=True)
class Head:
    """The number and the hash of an entry.

    If the head of an entry is also stored outside of the trail, e.g. in a log, it shows later whether this entry or
    an earlier entry was changed.
    """

    entry: int = 0
    hash: str = NOTHING

    def __str__(self) -> str:
        return f"{self.entry}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that is written as a text such as `12:3fa9...`.

        Examples
        --------
        >>> Head.parse("12:" + 64 * "a").entry
        12
        """
        match = re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())
        if match is None:
            raise InputError(
                "A head of an audit trail is the number of an entry, a colon and 64 hexadecimal digits. "
                f"Got {text!r} instead. The server logs the head after each round."
            )
        return cls(int(match[1]), match[2])


class BadEntry(Exception):
    """A line was changed, or is no entry of a trail.

    The message is the end of a sentence that begins with the line, e.g. "is no entry of an audit trail".
    """


@dataclass(frozen=True)
class TrailEntry:
    """An entry that was read from a trail."""

    head: Head
    """The number and the hash of the entry."""
    previous: str
    """The hash of the entry before it."""
    kind: str
    """`start` (a server began to write), `round`, or `rotation` (the trail continues in a new file)."""
    fields: Mapping[str, Any]
    """All fields of the line, by name."""


def seal(before: Head, kind: str, fields: Mapping[str, object]) -> tuple[bytes, Head]:
    """Return the line of a new entry, and the head of this entry. `before` is the head of the entry before it."""
    start = {"entry": before.entry + 1, "previous": before.hash, "kind": kind}
    body = json.dumps(
        {**start, "time": datetime.now(UTC).isoformat(timespec="seconds"), **fields},
        allow_nan=False,
        separators=(",", ":"),
    )[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return b'%s,"hash":"%s"}\n' % (body, digest.encode()), Head(before.entry + 1, digest)


def is_half_line(line: bytes) -> bool:
    """Whether a line is the beginning of an entry that was not written to its end.

    Examples
    --------
    >>> is_half_line(b'{"entry":7,"prev'), is_half_line(b"SQLite format 3")
    (True, False)
    """
    return not line.endswith(b"\n") and (line.startswith(BEGINNING) or BEGINNING.startswith(line))


def unseal(line: bytes) -> TrailEntry:
    """Return the entry of a line. Raise `BadEntry` if the line was changed, or is not an entry of a trail."""
    match = SEALED.fullmatch(line)
    if match is None:
        raise BadEntry("is no entry of an audit trail")
    if hashlib.sha256(match[1]).hexdigest().encode() != match[2]:
        raise BadEntry("was changed: its hash does not fit its content")
    try:
        fields = json.loads(line)
        return TrailEntry(
            Head(int(fields["entry"]), match[2].decode()), str(fields["previous"]), str(fields["kind"]), fields
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadEntry(f"cannot be read ({type(error).__name__})") from error
