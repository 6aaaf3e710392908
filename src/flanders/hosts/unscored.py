"""Checks of arrays that the filter does not look at: the buffers of batch normalisation, and integers.

These arrays are aggregated all the same, so an attacker could ruin the model with them. The checks refuse extreme
values.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from flanders.hosts.model_arrays import HostArray, Numbers
from flanders.round import ClientId

FARTHEST = 50.0
"""An array is refused if it changes by more than this many times what is usual in the round. The default filter has
the same limit for the lengths of updates."""


def far_clients(
    places: Sequence[HostArray], before: Mapping[str, Numbers], away: Mapping[ClientId, Sequence[float]]
) -> dict[ClientId, str]:
    """Return the clients with an array that changes too much, and for each client which array it is, in words.

    `places` are the arrays, and `before` is the global model. `away` has the largest change of a number in each
    array, by client. What is usual for an array is the median of these changes over the clients, or the largest
    number of the array in the global model if that is more. The limit is `FARTHEST` times what is usual.
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
    """Return the largest absolute difference between numbers at the same position; 0 for empty arrays."""
    with np.errstate(over="ignore"):
        apart = np.abs(numbers.astype(np.float64) - others.astype(np.float64))
    return float(apart.max()) if apart.size else 0.0
