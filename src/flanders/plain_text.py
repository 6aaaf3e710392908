"""Functions for text that people read: they make texts of clients safe to print, and lists of names short."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LINE_ENDS = "\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}"
"""Characters that end a line, though Unicode does not count them as control characters."""


def printable(text: object, longest: int | None = None) -> str:
    r"""Return a text in one line, with control characters and invisible characters replaced.

    Control characters can move the cursor of a terminal, or change the direction in which a line is written.
    Invisible characters can make two names look alike. If the text has more than `longest` characters, its middle
    is left out.

    Examples
    --------
    >>> printable("e\x1b[2Jve\n")
    'e�[2Jve�'
    >>> printable("one\N{LINE SEPARATOR}line")
    'one�line'
    >>> printable("abcdefghij", 5)
    'ab…ij'
    """
    safe = "".join(REPLACEMENT if unicodedata.category(c)[0] == "C" or c in LINE_ENDS else c for c in str(text))
    if longest is None or len(safe) <= longest:
        return safe
    ending = (longest - 1) // 2
    return f"{safe[: longest - 1 - ending]}…{safe[len(safe) - ending :]}"


def first_few(items: Sequence[T], most: int, text: Callable[[T], str] = str) -> str:
    """Return the texts of at most `most` items, with commas between them, and how many more items there are.

    Examples
    --------
    >>> first_few(["a", "b", "c", "d", "e"], 3, repr)
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(map(text, items[:most]))
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
