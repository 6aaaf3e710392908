"""Arrays that are aggregated although no filter sees them: the buffers of batch normalisation, and integers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from flanders.hosts.model_arrays import HostArray, Numbers
from flanders.round import ClientId

FARTHEST = 50.0
"""Such an array may change by this many times what is usual, and by this many times its size.

The default filter allows the lengths of updates the same factor.
"""


def far_clients(
    places: Sequence[HostArray], before: Mapping[str, Numbers], away: Mapping[ClientId, Sequence[float]]
) -> dict[ClientId, str]:
    """Return the clients with an array that is far off, and which array it is, in words.

    `before` is the global model, and `away` holds the largest change of each array of each client. An array is far
    off if it is `FARTHEST` times as far from the global model's as the median of the replies. Below that, an
    attacker can change such an array as it likes, but not ruin the model with it.
    """
    far: dict[ClientId, str] = {}
    for at, place in enumerate(places if away else ()):
        size = largest_difference(before[place.name], np.zeros(place.shape))
        usual = max(statistics.median(each[at] for each in away.values()), size)
        for client, each in away.items():
            if each[at] > FARTHEST * usual and client not in far:
                times = "infinitely" if usual == 0 else f"{each[at] / usual:.2g} times"
                far[client] = f"array {place.name!r} is {times} as far from the global model's as most"
    return far


def largest_difference(numbers: Numbers, others: Numbers) -> float:
    """Return the largest difference between two numbers at the same place; 0 if there are none."""
    with np.errstate(over="ignore"):
        apart = np.abs(numbers.astype(np.float64) - others.astype(np.float64))
    return float(apart.max()) if apart.size else 0.0
