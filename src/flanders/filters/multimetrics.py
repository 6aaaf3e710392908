"""The filter `MultiMetrics`. It combines three measures of how far a client's model is from the global model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector, IntVector
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.distances import manhattan_norms
from flanders.linalg.products import projections, squared_norms
from flanders.round import Round


@dataclass(frozen=True)
class MultiMetrics(Stateless):
    r"""Keep the clients that are most like all others in three measures of their models (Multi-metrics).

    The three measures of a model are its Manhattan distance, its Euclidean distance and its cosine to the global
    model. Let :math:`f_i` be one of these measures for client i. The differences to all other clients are added up:
    :math:`\sum_j |f_i - f_j|`. The three measures give three such sums for each client, which form the vector x of
    the client. The score is :math:`\sqrt{x^T \Sigma^{-1} x}`, where :math:`\Sigma` is the covariance matrix of the
    vectors of all clients. This is the formula of the paper. The authors' code adds up pairwise distances between
    the models instead.

    Parameters
    ----------
    keep
        How many clients to keep: a number, or a fraction of the round. The default is that of the paper.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.1], [1.1, 0.0], [0.9, 0.2], [1.0, 0.0], [9.0, 9.0]])
    >>> metrics = MultiMetrics(keep=4)
    >>> metrics.select(metrics.score(None, Round(rows)))
    array([0, 1, 2, 3])

    References
    ----------
    Huang et al., "Multi-metrics adaptively identifies backdoors in federated learning", ICCV 2023.
    """

    keep: float = 0.3

    def __post_init__(self) -> None:
        check_keep("MultiMetrics", self.keep)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by how much it differs from all others in the three measures."""
        updates, g = round_.updates, round_.global_model
        manhattan = manhattan_norms(updates, g)
        euclidean = np.sqrt(squared_norms(updates, g))
        lengths = np.sqrt(squared_norms(updates) * squared_norms(g[None, :])[0])
        products = projections(updates, g[None, :])[:, 0]
        cosines = np.divide(products, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        return Scores(round_.clients, whitened([manhattan, euclidean, cosines]))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the lowest scores."""
        return lowest(scores, self.keep)


def whitened(features: list[FloatVector]) -> FloatVector:
    r"""Return :math:`\sqrt{x^T \Sigma^{-1} x}` for each client; see `MultiMetrics`.

    Each measure is first divided by its largest value, so that no square overflows. This does not change the
    result.
    """
    sums = []
    for feature in features:
        unit = feature / (np.abs(feature).max() or 1.0)
        sums.append(np.abs(unit[:, None] - unit[None, :]).sum(axis=1))
    x: FloatMatrix = np.stack(sums, axis=1)
    covariance = np.atleast_2d(np.cov(x.T)) if len(x) > 1 else np.eye(len(features))
    squares: FloatVector = np.einsum("ij,jk,ik->i", x, np.linalg.pinv(covariance), x)
    return np.sqrt(np.maximum(squares, 0.0))
