r"""Tells random noise from changes by training.

Random noise changes all parameters of a model alike. Training does not: it changes some weights much more than
others, and mostly the same weights for all clients. So if the difference between two updates comes from training,
it depends on what the other clients change. Where they change a parameter more, the difference is usually larger,
or usually smaller. If the difference is noise, it has nothing to do with the other clients.
"""

from __future__ import annotations

import numpy as np

from flanders.arrays import Array, FloatVector, IntVector, to_numpy

MOST_NUMBERS = 4_000_000
"""At most about this many numbers are looked at, so that the test takes little time and memory. If the matrix has
more numbers, only every s-th column is used, for a whole number s."""
LEAST_COLUMNS = 1000
"""A matrix with at most this many columns is used as a whole. Of a wider matrix, at least half this many columns
are used. Fewer columns would show too little."""
TINY = 1e-12
"""This share of a row's average square is added to each square before its logarithm is taken, since the logarithm
of zero is not finite."""


def standard_errors_from_noise(matrix: Array, center: Array, first: IntVector, second: IntVector) -> FloatVector:
    r"""Return how far the differences between pairs of rows are from random noise, in standard errors.

    `center`, `(d,)`, is subtracted from each row of the matrix, `(m, d)`. Each row is then scaled to length 1.
    `first` and `second` have the row numbers i and j of each pair. The result has one number for each pair:

    .. math:: \sqrt{n}\ \mathrm{corr}_x \Bigl( \log (v_{ix} - v_{jx})^2,\ \log \sum_{k \ne i, j} v_{kx}^2 \Bigr).

    Here the v are the scaled rows, and x runs over the n columns that are used. corr is the correlation over these
    columns. If the difference is noise that is independent of the column, the result is normally distributed, with
    mean 0 and standard deviation 1.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scales = np.exp(rng.normal(size=5000))             # some parameters change more than others
    >>> rows = scales * rng.normal(size=(10, 5000))
    >>> rows[8:] = rows[7] + rng.normal(size=(2, 5000))    # noise changes all of them alike
    >>> standard_errors_from_noise(rows, np.zeros(5000), np.array([0, 8]), np.array([1, 9])).round()
    array([41.,  1.])
    """
    m, d = matrix.shape
    step = -(-d // max(LEAST_COLUMNS, MOST_NUMBERS // m))
    rows = to_numpy(matrix[:, ::step]).astype(np.float64) - to_numpy(center[::step]).astype(np.float64)
    rows /= np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    n, squares = rows.shape[1], rows**2
    others = np.maximum(squares.sum(axis=0) - squares[first] - squares[second], 0.0)
    change = np.log((rows[first] - rows[second]) ** 2 + TINY / n)
    usual = np.log(others + TINY / n)
    change -= change.mean(axis=1, keepdims=True)
    usual -= usual.mean(axis=1, keepdims=True)
    scale = np.sqrt((change**2).sum(axis=1) * (usual**2).sum(axis=1))
    return np.asarray(np.sqrt(n) * (change * usual).sum(axis=1) / np.maximum(scale, 1e-300))
