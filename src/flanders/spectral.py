"""Divide and conquer: outliers along the direction in which the updates spread most."""

from __future__ import annotations

import array_api_compat
import numpy as np

from flanders.geometry import gram, index_like
from flanders.types import Array, FloatVector


def divide_and_conquer(
    updates: Array,
    num_dropped: int,
    iterations: int,
    sample: int | None,
    rng: np.random.Generator,
) -> FloatVector:
    """Return each row's largest outlier score over `iterations`, relative to the cut; above 1 is out.

    Each iteration samples parameters, centres the rows, projects them on the top singular
    vector, and would drop the `num_dropped` rows with the largest squared projections; the cut lies
    halfway between the last kept and the first dropped. Who is above the cut in any
    iteration is out, so 1 and below is the intersection of what the iterations keep.

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021, Algorithm 2.
    """
    m, d = updates.shape
    xp = array_api_compat.array_namespace(updates)
    worst = np.zeros(m)
    whole = gram(updates, updates[0, :]) if sample is None or sample >= d else None
    for _ in range(1 if whole is not None else iterations):
        if whole is not None:
            products = whole
        else:
            columns = np.sort(rng.choice(d, size=sample, replace=False))
            part = xp.take(updates, index_like(columns, updates), axis=1)
            products = gram(part, part[0, :])
        # Centring the rows in the space of their inner products: J K J.
        centred = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
        values, vectors = np.linalg.eigh(centred)
        projected = np.maximum(values[-1], 0.0) * vectors[:, -1] ** 2
        worst = np.maximum(worst, relative_to_cut(projected, num_dropped))
    return worst


def relative_to_cut(scores: FloatVector, num_dropped: int) -> FloatVector:
    """Scale scores so that exactly the `num_dropped` largest are above 1; ties fall to later rows."""
    order = np.argsort(scores, kind="stable")
    kept = scores.size - num_dropped
    ranked = np.concatenate([[0.0], scores[order], [scores.max()]])  # the ends have a neighbour too
    cut = max((ranked[kept] + ranked[kept + 1]) / 2, 1e-300 * ranked[-1]) or 1.0
    relative = scores / cut
    relative[order[kept:]] = np.maximum(relative[order[kept:]], np.nextafter(1.0, 2.0))
    return relative
