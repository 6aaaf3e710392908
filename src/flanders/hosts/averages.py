"""The weighted average of arrays that the filter does not look at: integers, and buffers of batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flanders.arrays import FloatVector
from flanders.hosts.model_arrays import Numbers


def average(before: Numbers, several: Sequence[Numbers], weights: FloatVector) -> Numbers:
    """Return the weighted average of arrays, in the type of `before`. Integers are rounded.

    `before` is an array of the global model. `several` has the array of the same name from each client's model. The
    function averages the differences from `before`. So a float that no client has changed keeps its exact value.

    Examples
    --------
    >>> average(np.array([3]), [np.array([4]), np.array([8])], np.array([1.0, 3.0]))
    array([7])
    """
    start = before.astype(np.float64)
    changes = np.stack([numbers.astype(np.float64).ravel() for numbers in several]) - start.ravel()
    mean = start + (weights / weights.sum() @ changes).reshape(start.shape)
    return np.asarray(mean if before.dtype.kind == "f" else np.rint(mean), dtype=before.dtype)
