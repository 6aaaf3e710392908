from __future__ import annotations

import numpy as np
import pytest

from flanders.linalg.quadratic import BLOCK, inverse_squares


@pytest.mark.parametrize("n", [1, 5, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_the_squares_are_those_of_a_general_solver(n):
    rng = np.random.default_rng(n)
    root, columns = rng.normal(size=(n, n)), rng.normal(size=(n, 7))
    matrix = root @ root.T + np.eye(n)
    expected = (columns * np.linalg.solve(matrix, columns)).sum(axis=0)
    np.testing.assert_allclose(inverse_squares(matrix, columns), expected, rtol=1e-9)


def test_a_matrix_that_is_not_positive_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        inverse_squares(-np.eye(3), np.ones((3, 1)))
