"""The class `Choices`, which reads decisions from bytes. The targets build hostile input from these decisions.

The same bytes always lead to the same hostile input. So a case can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    1e-45,
    1e-300,
    65504.0,
    65520.0,
    1e30,
    3.4028235e38,
    -3e38,
    1e300,
    -1.7e308,
    math.inf,
    -math.inf,
    math.nan,
)
"""Floats at the limits of the float types, and other special floats."""
INTS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    2**15,
    2**31 - 1,
    2**31,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**40,
)
"""Integers at the limits of the integer types, and larger ones."""
TEXTS = (
    "",
    " ",
    "\0",
    "\n",
    "\x1b[31m\x1b]0;title\x07",
    "../../etc/passwd",
    "<script>alert(1)</script>",
    "'; DROP TABLE run; --",
    "nan",
    "\ud800".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    "\u202etxt.exe",
    "a" * 100_000,
    "é" * 100,
    "%s%n{}{0}",
)
"""Texts that may break terminals, web pages, SQL queries, paths or formats."""


class Choices:
    """Reads one decision after the other from bytes. After the last byte, all further bytes are zero."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes. Missing bytes are zeros."""
        found = self._data[self._at : self._at + count]
        self._at += count
        return found.ljust(count, b"\0")

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1."""
        width = 1 if limit <= 256 else 4
        return int.from_bytes(self.take(width), "little") % max(limit, 1)

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """Return True with a probability of `percent` percent, if the bytes are random."""
        return self.below(100) >= 100 - percent

    def generator(self) -> np.random.Generator:
        """Return a generator of random numbers, seeded with the next bytes."""
        return np.random.default_rng(int.from_bytes(self.take(4), "little"))

    def value(self, depth: int = 3) -> object:
        """Return a hostile value of any plain type.

        `depth` limits the nesting of lists and tables with values in them.
        """
        kind = self.below(9 if depth else 6)
        if kind == 0:
            return self.pick(FLOATS)
        if kind == 1:
            return self.pick(INTS)
        if kind == 2:
            return self.pick(TEXTS)
        if kind == 3:
            return self.pick((None, True, False))
        if kind == 4:
            return self.take(self.below(8)).decode("latin1")
        if kind == 5:
            return nested(self.pick((1, 50, 400)))
        if kind == 6:
            return [self.value(depth - 1) for _ in range(self.below(4))]
        if kind == 7:
            return {str(self.pick(TEXTS))[:30]: self.value(depth - 1) for _ in range(self.below(4))}
        return [self.value(0)] * self.pick((1, 10, 1000))


def nested(depth: int) -> list[object]:
    """Return an empty list inside `depth` lists."""
    found: list[object] = []
    for _ in range(depth):
        found = [found]
    return found


def damaged(data: bytes, choices: Choices) -> bytes:
    """Return a copy of bytes in which a few places are changed, removed, repeated or filled."""
    out = bytearray(data)
    for _ in range(1 + choices.below(4)):
        place = choices.below(len(out) + 1)
        length = choices.pick((1, 2, 4, 16, 256))
        kind = choices.below(7)
        if kind == 0 and out:
            out[place % len(out)] ^= 1 << choices.below(8)
        elif kind == 1:
            out[place : place + length] = choices.take(min(length, 16))
        elif kind == 2:
            del out[place : place + length]
        elif kind == 3:
            out[place:place] = out[place : place + length]
        elif kind == 4:
            del out[place:]
        elif kind == 5:
            out[place : place + length] = choices.pick((b"\0", b"\xff", b"\x7f", b"[", b"\x80")) * length
        else:
            other = choices.below(len(out) + 1)
            out[place : place + length] = out[other : other + length]
    return bytes(out)
