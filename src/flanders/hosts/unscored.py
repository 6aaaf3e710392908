"""Checks of unscored arrays: those that the filter does not look at.

The unscored arrays are the buffers of batch normalisation, and integers. They are aggregated, too, so an attacker
could ruin the model with them. The checks refuse replies in which such an array has extreme values.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from flanders.client_ids import ClientId
from flanders.hosts.model_arrays import HostArray, Numbers

FARTHEST = 50.0
"""A reply is refused if an unscored array has changed more than this many times as much as usual. `far_clients`
says what is usual. The default filter has the same limit for the lengths of updates, since the lengths of honest
updates differ by less."""


def far_clients(
    places: Sequence[HostArray], before: Mapping[str, Numbers], away: Mapping[ClientId, Sequence[float]]
) -> dict[ClientId, str]:
    """Return the clients with an unscored array that has changed too much, each with a sentence about this array.

    `places` describes the unscored arrays, and `before` is the global model. The change of an array is the largest
    absolute change of a number in it. `away` has a list for each client, with the change of each array.

    The usual change of an array is the median of its changes over the clients. If the array has numbers that are
    larger than this median, the usual change is the largest absolute number of the array in the global model. A
    change of more than `FARTHEST` times the usual change is too much.
    """
    far: dict[ClientId, str] = {}
    for i, place in enumerate(places if away else ()):
        size = largest_difference(before[place.name], np.zeros(place.shape))
        usual = max(statistics.median(changes[i] for changes in away.values()), size)
        for client, changes in away.items():
            if changes[i] > FARTHEST * usual and client not in far:
                much = f" {changes[i] / usual:.2g} times as much as usual" if usual else ""
                far[client] = f"array {place.name!r} changes{much or ', though most clients leave it at zero'}"
    return far


def largest_difference(numbers: Numbers, others: Numbers) -> float:
    """Return the largest absolute difference between numbers at the same position; 0 for empty arrays."""
    with np.errstate(over="ignore"):
        apart = np.abs(numbers.astype(np.float64) - others.astype(np.float64))
    return float(apart.max()) if apart.size else 0.0
