"""In which layers an update is not what was expected of its sender."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, index_like, like, to_numpy
from flanders.linalg.blocks import HOST_BLOCK

NAMED = 2
"""Layers that are named of one update at most."""
LEAST_SHARE, LEAST_EXCESS = 0.2, 2.0
"""A layer is named if it has so much of the deviation, and so many times as much as usual."""


def squares_by_layer(
    updates: Array,
    rows: IntVector,
    global_model: Array,
    scale: FloatVector,
    expected: Sequence[tuple[FloatVector, Array, IntVector]],
    layers: Mapping[str, int],
) -> FloatMatrix:
    r"""Return how far rows of updates are from what was expected of them, squared, in each layer: `(n, layers)`.

    What is looked at is :math:`s_c (x_c - g) - \sum_k a_{kc} v_{kc}`: `expected` has the factors, a matrix, and
    which of its rows each vector is.
    """
    xp, n = array_api_compat.array_namespace(updates), rows.size
    found = np.zeros((n, len(layers)))
    parts = [(like(a, updates)[:, None], matrix, index_like(at, updates)) for a, matrix, at in expected]
    stretch, index = like(scale, updates)[:, None], index_like(rows, updates)
    for number, columns in _blocks(layers, max(64, HOST_BLOCK // n)):
        left = stretch * (xp.take(updates[:, columns], index, axis=0) - global_model[None, columns])
        for a, matrix, at in parts:
            left = left - a * xp.take(matrix[:, columns], at, axis=0)
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
