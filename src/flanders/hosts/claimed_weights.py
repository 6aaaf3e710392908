"""Checks of the weight that a client claims, usually its number of examples.

A client counts in the average in proportion to its weight. If the weight cannot be used, the client's reply is
refused.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from flanders.hosts.model_arrays import BadReply
from flanders.plain_text import printable

MOST_EXAMPLES = 2**53
"""The most examples that a client may claim. Above this number, floats do not represent all integers."""
LONGEST_REASON = 120
"""The reason why a reply is refused is cut to this many characters. A reason may quote what a client sent, and a
client may send long texts."""
LONGEST_VALUE = 30
"""A value that a client sent is cut to this many characters where a reason quotes the value."""


def check_weight(name: str, weight: Any, most: float | None = None) -> float:
    """Return the weight that a client claims. Raise `BadReply` unless it is a positive finite number up to `most`.

    `name` is the name of the weight in the error message. The default of `most` is `MOST_EXAMPLES`.

    Examples
    --------
    >>> check_weight("metric 'num-examples'", 600)
    600.0
    """
    most = MOST_EXAMPLES if most is None else most
    is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if is_number and not is_finite_number(weight):
        raise BadReply(f"{name} is not finite as a float")
    if not is_number or weight <= 0:
        raise BadReply(f"{name} is {short(repr(weight), LONGEST_VALUE)} instead of a positive number")
    if weight > most:
        raise BadReply(f"{name} is {weight:g}, more than the {most:g} allowed")
    return float(weight)


def capped_at_median(claims: Sequence[float], times: float | None) -> list[float]:
    """Return the claimed weights of a round. A weight above the limit is lowered to the limit.

    The limit is the median of the claimed weights, multiplied by `times`. If `times` is None, there is no limit. If
    the number of claims is even, two claims are in the middle, and the median is the lower one. So in a round of
    two clients, the larger claim cannot raise the limit.

    Examples
    --------
    >>> capped_at_median([70.0, 80.0, 70_000.0], 3)
    [70.0, 80.0, 240.0]
    """
    if times is None or not claims:
        return list(claims)
    most = times * statistics.median_low(claims)
    return [min(claim, most) if most > 0 else claim for claim in claims]


def is_finite_number(value: float) -> bool:
    """Whether a number is finite. An int that is too large for a float counts as infinite."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def short(text: str, most: int = LONGEST_REASON) -> str:
    """Return the beginning of a text, at most `most` characters, in one line that is safe to print."""
    return printable(" ".join(text[: 2 * most].split())[:most])
