"""The entries of an audit trail: one line of JSON each, sealed with a hash.

The last field of a line is the SHA-256 of all that stands before it. One of the fields before it is the hash of the
line before. So whoever changes a line has to change all lines after it, too.
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
"""Stands where the first entry would hold the hash of the one before."""
BEGINNING = b'{"entry":'
"""How every entry begins."""
SEALED = re.compile(rb'(\{"entry":.*),"hash":"([0-9a-f]{64})"\}\n?', re.DOTALL)
"""A line: what is hashed, and the hash."""


@dataclass(frozen=True)
class Head:
    """The number and the hash of an entry. Whoever has it can tell that the trail up to there is unchanged."""

    entry: int = 0
    hash: str = NOTHING

    def __str__(self) -> str:
        return f"{self.entry}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return the head that a text such as `12:3fa9...` names.

        Examples
        --------
        >>> Head.parse("12:" + 64 * "a").entry
        12
        """
        found = re.fullmatch(r"(\d{1,15}):([0-9a-f]{64})", text.strip())
        if found is None:
            raise InputError(
                "A head of an audit trail is the number of an entry, a colon and 64 hexadecimal digits. "
                f"Got {text!r} instead. The server logs the head after each round."
            )
        return cls(int(found[1]), found[2])


class BadEntry(Exception):
    """A line that no trail has. The message says why."""


@dataclass(frozen=True)
class TrailEntry:
    """An entry that was read from a trail."""

    head: Head
    """Its number and its hash."""
    previous: str
    """The hash of the entry before it."""
    kind: str
    """What it is about: `start`, `round` or `rotation`."""
    fields: Mapping[str, Any]
    """All that it says."""


def seal(before: Head, kind: str, fields: Mapping[str, object]) -> tuple[bytes, Head]:
    """Return the line of a new entry, and the head that it makes."""
    start = {"entry": before.entry + 1, "previous": before.hash, "kind": kind}
    body = json.dumps(
        {**start, "time": datetime.now(UTC).isoformat(timespec="seconds"), **fields},
        allow_nan=False,
        separators=(",", ":"),
    )[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return b'%s,"hash":"%s"}\n' % (body, digest.encode()), Head(before.entry + 1, digest)


def is_half_line(line: bytes) -> bool:
    """Tell whether this is the beginning of an entry that was not written to its end.

    Examples
    --------
    >>> is_half_line(b'{"entry":7,"prev'), is_half_line(b"SQLite format 3")
    (True, False)
    """
    return not line.endswith(b"\n") and (line.startswith(BEGINNING) or BEGINNING.startswith(line))


def unseal(line: bytes) -> TrailEntry:
    """Return the entry of a line. Raise `BadEntry` if the line was changed, or is none of a trail."""
    found = SEALED.fullmatch(line)
    if found is None:
        raise BadEntry("is no entry of an audit trail")
    if hashlib.sha256(found[1]).hexdigest().encode() != found[2]:
        raise BadEntry("was changed: its hash does not belong to what it says")
    try:
        fields = json.loads(line)
        return TrailEntry(
            Head(int(fields["entry"]), found[2].decode()), str(fields["previous"]), str(fields["kind"]), fields
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise BadEntry(f"cannot be read ({type(error).__name__})") from error
