"""Text that others chose, made safe for terminals, logs and pages: clients are hostile, and name themselves."""

from __future__ import annotations

import unicodedata

REPLACED = "\N{REPLACEMENT CHARACTER}"


def printable(text: object, longest: int | None = None) -> str:
    r"""Return a text in one line, without control characters and other characters that nobody sees.

    Such characters can move a terminal's cursor, turn the direction of a line, or make two names look alike.
    If the text has more than `longest` characters, its middle is left out.

    Examples
    --------
    >>> printable("e\x1b[2Jve\n")
    'e�[2Jve�'
    >>> printable("abcdefghij", 5)
    'ab…ij'
    """
    safe = "".join(REPLACED if unicodedata.category(c)[0] == "C" else c for c in str(text))
    if longest is None or len(safe) <= longest:
        return safe
    ending = (longest - 1) // 2
    return f"{safe[: longest - 1 - ending]}…{safe[len(safe) - ending :]}"
