"""The aggregator `Lasa`. It averages each tensor over the clients whose change of this tensor is normal.

A tensor is the weights or the biases of one layer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Aggregator
from flanders.arrays import Array, BoolVector, FloatVector
from flanders.checks import check_number
from flanders.linalg.products import clip_factors, squared_norms
from flanders.linalg.sparse import row_limits, sparse_move, sparse_statistics
from flanders.round import Round


@dataclass(frozen=True)
class Lasa(Aggregator):
    r"""Average each tensor over the clients whose change of that tensor has a normal length and normal signs.

    .. math:: g_l \leftarrow g_l + \frac{1}{|N_l|} \sum_{c \in N_l} \tilde u_{cl}, \quad
              N_l \text{: the clients that are normal in tensor } l

    Here g is the global model. The displacement of a client is its model minus g. A displacement that is longer
    than the median displacement is shortened to the median length. Then the parameters with the smallest absolute
    values are set to zero. Their share is `sparsity`. (The authors' code sets one more parameter to zero.) The
    result is :math:`\tilde u_c` for client c. The part of :math:`\tilde u_c` in tensor l is :math:`\tilde u_{cl}`.

    For each client and each tensor, two numbers are computed. One is the length of :math:`\tilde u_{cl}`. The other
    one is the share of positive numbers among the numbers of :math:`\tilde u_{cl}` that are not zero. A client is
    normal in a tensor if both numbers are close to their medians over all clients. If no client is normal in a
    tensor, all clients are averaged there. If the layers are not known, the whole model counts as one tensor.

    Parameters
    ----------
    sparsity
        The share of parameters that is set to zero in each displacement.
    length_bound
        A length is normal if it is less than this many standard deviations away from the median length.
    sign_bound
        A share of positive numbers is normal if it is less than this many standard deviations away from the median
        share.

    Examples
    --------
    >>> Lasa(sparsity=0.5)(np.array([[4.0, 1.0], [4.0, 1.0], [4.0, 1.0]]))
    array([4., 0.])

    References
    ----------
    Xu et al., "Achieving Byzantine-resilient federated learning via layer-adaptive sparsified model aggregation",
    WACV 2025.
    """

    sparsity: float = 0.3
    length_bound: float = 2.0
    sign_bound: float = 1.0

    def __post_init__(self) -> None:
        check_number("Lasa", "sparsity", self.sparsity, 0, 1)
        check_number("Lasa", "length_bound", self.length_bound, 0)
        check_number("Lasa", "sign_bound", self.sign_bound, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model plus, in each tensor, the average of the normal clients' displacements."""
        updates, g = round_.updates, round_.global_model
        d = g.shape[0]
        sizes = [size for size in round_.layers.values() if size] or [d]
        lengths = np.sqrt(squared_norms(updates, g))
        factors = clip_factors(lengths, float(np.median(lengths)))
        limits = row_limits(updates, g, int(self.sparsity * d))
        parts = []
        for start, stop in itertools.pairwise(np.cumsum([0, *sizes]).tolist()):
            rows, at = updates[:, start:stop], g[start:stop]
            length, positive = sparse_statistics(rows, at, limits)
            normal = near_the_median(factors * length, self.length_bound)
            normal &= near_the_median(positive, self.sign_bound)
            share = normal / normal.sum() if normal.any() else np.full(normal.size, 1 / normal.size)
            parts.append(sparse_move(at, share * factors, rows, limits))
        return array_api_compat.array_namespace(g).concat(parts)


def near_the_median(values: FloatVector, bound: float) -> BoolVector:
    """Return which values equal the median, or are less than `bound` standard deviations away from it."""
    away, spread = np.abs(values - np.median(values)), float(np.std(values))
    rounding = 1e-9 * np.abs(values).max(initial=0.0)  # values that differ by at most this count as equal
    near: BoolVector = (away < bound * spread) | (away <= rounding)
    return near
