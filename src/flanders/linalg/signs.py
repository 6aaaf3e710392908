"""The shares of positive, zero and negative parameters of each row. The filter `SignGuard` uses them."""

from __future__ import annotations

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector, on_host, to_numpy
from flanders.linalg.blocks import column_blocks
from flanders.linalg.selection import take_columns


def sign_shares(matrix: Array, center: Array, columns: IntVector | None = None) -> FloatMatrix:
    """Return the shares of positive, zero and negative parameters of each row of `matrix - center`, `(m, 3)`.

    If `columns` is given, only these columns count.

    Examples
    --------
    >>> sign_shares(np.array([[1.0, 2.0, 0.0, -3.0]]), np.zeros(4))
    array([[0.5 , 0.25, 0.25]])
    """
    rows, at = on_host(matrix), on_host(center)
    if columns is not None:
        rows, at = take_columns(rows, columns), take_columns(at[None, :], columns)[0, :]
    xp = array_api_compat.array_namespace(rows)
    counts: Array = 0
    for c in column_blocks(rows):
        signs = rows[:, c] - at[None, c]
        kinds = signs > 0, signs == 0, signs < 0
        counts = counts + xp.stack([xp.count_nonzero(kind, axis=1) for kind in kinds], axis=1)
    return np.asarray(to_numpy(counts) / rows.shape[1])
