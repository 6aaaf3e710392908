"""Quadratic forms with the inverse of a symmetric matrix. The filter `Fingerprint` uses them."""

from __future__ import annotations

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector

BLOCK = 128
"""How many equations are solved at a time. With more equations, inverting their matrix takes too long. With fewer,
the matrix products take too long."""


def inverse_squares(matrix: FloatMatrix, columns: FloatMatrix) -> FloatVector:
    r"""Return :math:`x^T M^{-1} x` for each column x of `columns`. M is `matrix`, symmetric and positive definite.

    With the Cholesky decomposition :math:`M = L L^T`, this is :math:`\|L^{-1} x\|^2`. Computed like this, it
    takes half the time of a general solver.

    Examples
    --------
    >>> inverse_squares(np.array([[4.0, 0.0], [0.0, 1.0]]), np.array([[2.0, 0.0], [0.0, 3.0]]))
    array([1., 9.])
    """
    lower = np.linalg.cholesky(matrix)
    solved = np.empty_like(columns)
    for first in range(0, len(lower), BLOCK):
        rows = slice(first, min(first + BLOCK, len(lower)))
        left = columns[rows] - lower[rows, :first] @ solved[:first]
        solved[rows] = np.linalg.inv(lower[rows, rows]) @ left
    return np.asarray((solved**2).sum(axis=0))
