"""What a client claims about itself, besides the model that it sends."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from flanders.hosts.model_arrays import BadReply

MOST_EXAMPLES = 2**53
"""The most examples that a client may claim. Floats do not represent all larger integers."""
LONGEST_REASON = 120
"""The most characters of a reason that are shown. Part of it may come from a client."""
LONGEST_VALUE = 30
"""The most characters of a client's value that a reason shows."""


def check_weight(name: str, weight: Any, most: float | None = None) -> float:
    """Return how much a reply counts, or raise `BadReply` if the client claims something impossible.

    `name` is what the host calls the claim. `most` is the largest weight that the server allows.

    Examples
    --------
    >>> check_weight("metric 'num-examples'", 600)
    600.0
    """
    most = MOST_EXAMPLES if most is None else most
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if number and not is_finite_number(weight):
        raise BadReply(f"{name} is not finite")
    if not number or weight <= 0:
        raise BadReply(f"{name} is {short(repr(weight), LONGEST_VALUE)} instead of a positive number")
    if weight > most:
        raise BadReply(f"{name} is {weight:g}, more than the {most:g} allowed")
    return float(weight)


def capped_at_median(claims: Sequence[float], times: float | None) -> list[float]:
    """Return the claims of a round, none larger than so many times their median.

    Of two claims in the middle the lower one counts, so that one of two clients cannot raise the limit.

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
    """Tell whether a number is finite. An int that is too large for a float is not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def short(text: str, most: int = LONGEST_REASON) -> str:
    """Return a text in one line of at most this many characters."""
    return " ".join(text.split())[:most]
