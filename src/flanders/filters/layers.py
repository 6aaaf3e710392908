"""In which layers an update is not what was expected of its sender."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import array_api_compat
import numpy as np

from flanders.geometry import HOST_BLOCK, FloatMatrix, like
from flanders.types import Array, FloatVector, to_numpy

NAMED = 2
"""Layers that are named of one update at most."""
LEAST_SHARE, LEAST_EXCESS = 0.2, 2.0
"""A layer is named if it has so much of the deviation, and so many times as much as usual."""


def squares_by_layer(
    updates: Array,
    global_model: Array,
    scale: FloatVector,
    expected: Sequence[tuple[FloatVector, Array]],
    layers: Mapping[str, int],
) -> FloatMatrix:
    r"""Return how far updates are from what was expected of them, squared, in each layer: `(n, layers)`.

    What is looked at is :math:`s_c (x_c - g) - \sum_k a_{kc} v_{kc}`, with the factors and vectors of `expected`;
    vectors have a row for each update, or one for all.
    """
    xp, n = array_api_compat.array_namespace(updates), updates.shape[0]
    found = np.zeros((n, len(layers)))
    factors = [(like(a, updates)[:, None], v) for a, v in expected]
    stretch = like(scale, updates)[:, None]
    for number, columns in _blocks(layers, max(64, HOST_BLOCK // n)):
        left = stretch * (updates[:, columns] - global_model[None, columns])
        for a, v in factors:
            left = left - a * v[..., columns]
        found[:, number] += to_numpy(xp.sum(left * left, axis=1))
    return found


def _blocks(layers: Mapping[str, int], width: int) -> Iterator[tuple[int, slice]]:
    """Yield pieces of each layer that fit the cache, with the layer's number."""
    start = 0
    for number, size in enumerate(layers.values()):
        for first in range(start, start + size, width):
            yield number, slice(first, min(first + width, start + size))
        start += size


def in_which(squares: FloatMatrix, usual: FloatMatrix, names: Sequence[str]) -> list[str]:
    """Say of each update in which layers most of its deviation is, and which share others have there.

    Examples
    --------
    >>> in_which(np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([[9.0, 1.0]]), ["conv", "fc"])
    ['75% of it in fc (usually 10%)', '50% of it in fc (usually 10%)']
    """
    share, ordinary = (x / np.maximum(x.sum(axis=1, keepdims=True), 1e-300) for x in (squares, usual))
    middle = np.median(ordinary, axis=0)
    told = []
    for row in share:
        large = [i for i in np.argsort(-row)[:NAMED] if row[i] >= max(LEAST_SHARE, LEAST_EXCESS * middle[i])]
        told.append(", ".join(f"{row[i]:.0%} of it in {names[i]} (usually {middle[i]:.0%})" for i in large))
    return told
