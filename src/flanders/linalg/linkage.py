"""Single linkage: clusters that grow as rows are joined to their nearest rows, step by step."""

from __future__ import annotations

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector


def majority_heights(distances: FloatMatrix) -> FloatVector:
    """Return at which distance each row joins the majority, if rows are joined in rising order of distance.

    The majority is the first cluster of single linkage with more than half of the rows. Its members all have the
    distance at which it came to be, and every other row has a larger one. The members are what HDBSCAN calls a
    cluster if a cluster needs more than half of the rows, one neighbour makes a row dense, and a single cluster is
    allowed: the condensed tree then has no branches, and its one cluster ends where it falls apart.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 7.0, 30.0])
    >>> majority_heights(np.abs(x[:, None] - x))
    array([ 1.,  1.,  1.,  5., 23.])

    References
    ----------
    Campello, Moulavi and Sander, "Density-based clustering based on hierarchical density estimates", PAKDD 2013.
    """
    m = distances.shape[0]
    heights = np.zeros(m)
    cluster = np.arange(m)
    inside = np.zeros(m, dtype=bool)
    for length, one, other in minimum_spanning_tree(distances):
        joined = (cluster == cluster[one]) | (cluster == cluster[other])
        cluster[joined] = cluster[one]
        if 2 * joined.sum() > m:  # there is only one such cluster
            heights[joined & ~inside] = length
            inside |= joined
    return heights


def minimum_spanning_tree(distances: FloatMatrix) -> list[tuple[float, int, int]]:
    """Return the edges of a minimum spanning tree as (length, row, row), in rising order of length (Prim)."""
    m = distances.shape[0]
    outside = np.ones(m, dtype=bool)
    outside[0] = False
    nearest, at = distances[0].astype(np.float64), np.zeros(m, dtype=np.int64)
    edges = []
    for _ in range(m - 1):
        new = int(np.argmin(np.where(outside, nearest, np.inf)))
        edges.append((float(nearest[new]), int(at[new]), new))
        outside[new] = False
        closer = distances[new] < nearest
        nearest[closer], at[closer] = distances[new][closer], new
    return sorted(edges)
