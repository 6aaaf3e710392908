"""Single linkage, a way to find clusters of rows. The aggregator and the filter FLAME use it.

At first each row is a cluster of its own. Then the two nearest clusters are joined, again and again. The distance
between two clusters is the smallest distance between a row of one and a row of the other.
"""

from __future__ import annotations

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector


def majority_heights(distances: FloatMatrix) -> FloatVector:
    """Return the distance at which each row joins the majority in single linkage.

    The majority is the first cluster with more than half of the rows. The rows of this cluster all get the same
    result: the distance at which the cluster was formed. The other rows join it later, at the same or larger
    distances.

    HDBSCAN finds the same cluster with these settings: `min_cluster_size` is the smallest whole number above half
    the number of rows, `min_samples` is 1, and a single cluster is allowed.

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
    for length, first, second in minimum_spanning_tree(distances):
        joined = (cluster == cluster[first]) | (cluster == cluster[second])
        cluster[joined] = cluster[first]
        if 2 * joined.sum() > m:  # only one cluster at a time can have more than half of the rows
            heights[joined & ~inside] = length
            inside |= joined
    return heights


def minimum_spanning_tree(distances: FloatMatrix) -> list[tuple[float, int, int]]:
    """Return the edges of a minimum spanning tree as (length, row, row), in rising order of length.

    Prim's algorithm finds the tree.
    """
    m = distances.shape[0]
    outside = np.ones(m, dtype=bool)
    outside[0] = False
    nearest, neighbour = distances[0].astype(np.float64), np.zeros(m, dtype=np.int64)
    edges = []
    for _ in range(m - 1):
        new = int(np.argmin(np.where(outside, nearest, np.inf)))
        edges.append((float(nearest[new]), int(neighbour[new]), new))
        outside[new] = False
        closer = distances[new] < nearest
        nearest[closer], neighbour[closer] = distances[new][closer], new
    return sorted(edges)
