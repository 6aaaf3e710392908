"""What the attacks compute from the honest rows, and how they turn one model into b of them."""

from __future__ import annotations

import math

import array_api_compat

from flanders.arrays import Array, on_host
from flanders.attacks.attack import View
from flanders.linalg.blocks import centred_block, column_blocks, join
from flanders.linalg.products import squared_norms


def moments(rows: Array, center: Array) -> tuple[Array, Array]:
    """Return the mean of `rows - center` and the (population) standard deviation, coordinate by coordinate.

    Both are accumulated in float64, a block of columns at a time. The mean is taken of the
    differences, so that a parameter nobody moved has a mean displacement of exactly zero.

    Examples
    --------
    >>> import numpy as np
    >>> moments(np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([0.0, 7.0]))
    (array([2., 0.]), array([1., 0.]))
    """
    mean, std = over_columns(rows, center, "mean", "std")
    return mean, std


def mean_displacement(view: View) -> Array:
    """Return how far the honest models have moved from the global model, on average, `(d,)`."""
    return over_columns(view.honest, view.global_model, "mean")[0]


def over_columns(rows: Array, center: Array, *statistics: str) -> list[Array]:
    """Return statistics of each column of `rows - center`, by their names in the array API, in one pass."""
    source, origin = on_host(rows), on_host(center)
    xp = array_api_compat.array_namespace(source)
    found: list[list[Array]] = [[] for _ in statistics]
    for columns in column_blocks(source):
        block = centred_block(source, origin, columns)
        for pieces, name in zip(found, statistics, strict=True):
            pieces.append(getattr(xp, name)(block, axis=0))
    return [join(pieces, rows) for pieces in found]


def norm(vector: Array) -> float:
    """Return the Euclidean length of one flattened model, accumulated in float64."""
    return math.sqrt(float(squared_norms(vector[None, :])[0]))


def simulated_copies(view: View) -> int:
    """Return how many malicious rows to set against the honest rows that the attacker knows.

    All b if it knows all benign models; else as many as keep the proportion of the round: its own
    honest models stand for the benign ones then, and b copies would be half of that round.
    """
    b, known = view.num_malicious, view.honest.shape[0]
    unknown = view.num_clients - b
    return b if unknown == 0 else min(b, max(1, round(known * b / unknown)))


def copies(model: Array, count: int) -> Array:
    """Return `count` rows that all hold `model`: memory of their own, not a view of it."""
    xp = array_api_compat.array_namespace(model)
    return xp.tile(model[None, :], (count, 1))
