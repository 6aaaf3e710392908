"""The scores and selections of Krum, Multi-Krum and Bulyan, from the squared distances between rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import FloatMatrix, FloatVector, IntVector


def krum_scores(distances: FloatMatrix, num_malicious: int) -> FloatVector:
    """Return, for each row, the sum of the squared distances to the m - b - 2 other rows that are nearest to it.

    m is the number of rows, and b is `num_malicious`. If m - b - 2 is less than 1, only the nearest row counts.
    `distances` has the squared distances.

    References
    ----------
    Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """
    m = distances.shape[0]
    others = distances + np.diag(np.full(m, np.inf))
    nearest = max(1, m - num_malicious - 2)
    sums: FloatVector = np.sort(others, axis=1)[:, : min(nearest, max(m - 1, 1))].sum(axis=1)
    return sums


def multi_krum_rows(distances: FloatMatrix, num_malicious: int, keep: int) -> IntVector:
    """Return the `keep` rows with the lowest Krum scores, as row numbers in rising order."""
    scores = krum_scores(distances, num_malicious)
    return np.sort(np.argsort(scores, kind="stable")[:keep]).astype(np.int64)


def bulyan_rows(distances: FloatMatrix, num_malicious: int, keep: int) -> IntVector:
    """Return `keep` rows, selected one by one, as row numbers in rising order.

    For each selection, the Krum scores of the rows that are left are computed anew. The row with the lowest score
    is selected.

    References
    ----------
    El Mhamdi et al., "The hidden vulnerability of distributed learning in Byzantium", ICML 2018.
    """
    left = list(range(distances.shape[0]))
    picked = []
    for _ in range(keep):
        scores = krum_scores(distances[np.ix_(left, left)], num_malicious)
        picked.append(left.pop(int(np.argmin(scores))))
    return np.array(sorted(picked), dtype=np.int64)


def are_nearest(distances: FloatMatrix, count: int) -> NDArray[np.bool_]:
    """Return, for each row, which of the rows are its `count` nearest ones. One of them is the row itself.

    Of equally near rows, those with the lower numbers are taken.

    Examples
    --------
    >>> are_nearest(np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 4.0], [1.0, 4.0, 0.0]]), 2)
    array([[ True,  True, False],
           [ True,  True, False],
           [ True, False,  True]])
    """
    m = distances.shape[0]
    itself = distances - np.diag(np.full(m, np.inf))
    near = np.asarray(itself <= np.sort(itself, axis=1)[:, count - 1, None])
    if np.count_nonzero(near) > m * count:  # some rows are equally near: a stable sort, which is slower, ranks them
        near[:] = False
        np.put_along_axis(near, np.argsort(itself, axis=1, kind="stable")[:, :count], True, axis=1)
    return near
