"""Aggregators that average the most compact part of the round: minimum diameter, minimum spread, CAF."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, check_minority, mean_of
from flanders.arrays import Array, FloatMatrix, FloatVector
from flanders.checks import check_number
from flanders.linalg.products import combine, gram, squared_distances
from flanders.linalg.subsets import smallest_diameter, smallest_spread
from flanders.round import Round


@dataclass(frozen=True)
class MinimumDiameter(Aggregator):
    r"""Average the m - b models whose largest distance from each other is smallest (MDA).

    .. math:: \frac{1}{m - b} \sum_{c \in S} \theta_c, \qquad
              S = \arg\min_{|S| = m - b} \max_{i, j \in S} \|\theta_i - \theta_j\|

    The subset is found exactly, by a search that branches. The search takes long if many clients are malicious and
    lie between the honest ones. It ends with an error if it takes too long. In a tie, lower client ids are kept.

    Examples
    --------
    >>> MinimumDiameter(num_malicious=1)(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))
    array([2.5, 3.5, 4.5])

    References
    ----------
    El Mhamdi et al., "Genuinely distributed Byzantine machine learning", PODC 2020.
    """

    num_malicious: float = 0.2
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("MinimumDiameter", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the subset."""
        m, order = round_.updates.shape[0], round_.by_client()
        b = check_minority("MinimumDiameter", self.num_malicious, m)
        squares = squared_distances(round_.updates, round_.global_model)
        distances = rounded(squares[np.ix_(order, order)])
        return mean_of(round_, order[smallest_diameter(distances, m - b)], weighted=self.weighted)


@dataclass(frozen=True)
class MinimumSpread(Aggregator):
    r"""Average the m - b models whose covariance has the smallest largest eigenvalue (SMEA).

    .. math:: \frac{1}{m - b} \sum_{c \in S} \theta_c, \qquad S = \arg\min_{|S| = m - b}
              \lambda_{\max}\Big(\sum_{c \in S} (\theta_c - \bar\theta_S)(\theta_c - \bar\theta_S)^T\Big)

    All subsets are tried, so it is for few clients: 20 of which 4 are malicious have 4,845 subsets. More than
    100,000 are an error. ByzFL estimates each eigenvalue with a single step from a random vector. Here, as in the
    paper, it is exact.

    Examples
    --------
    >>> MinimumSpread(num_malicious=1)(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))
    array([2.5, 3.5, 4.5])

    References
    ----------
    Allouah et al., "On the privacy-robustness-utility trilemma in distributed learning", ICML 2023.
    """

    num_malicious: float = 0.2
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("MinimumSpread", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the subset."""
        m, order = round_.updates.shape[0], round_.by_client()
        b = check_minority("MinimumSpread", self.num_malicious, m)
        products = gram(round_.updates, round_.global_model)
        rows = smallest_spread(products[np.ix_(order, order)], m - b)
        return mean_of(round_, order[rows], weighted=self.weighted)


@dataclass(frozen=True)
class Caf(Aggregator):
    r"""Take weight from outliers along the main direction of spread, step by step (CAF).

    All clients start with weight 1. Each step computes the weighted mean and the main direction of the weighted
    covariance. Each weight is then multiplied by :math:`1 - \tau_c / \max \tau` (the largest of those who still
    have weight), with the squared distance :math:`\tau_c` of the client from the mean along that direction. Steps
    go on while the weights add up to more than m - 2b. The result is the mean of the step with the smallest largest
    eigenvalue. ByzFL estimates the direction with a single step from a random vector. Here, as in the paper, it is
    exact.

    Examples
    --------
    >>> Caf(num_malicious=1)(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))
    array([4., 5., 6.])

    References
    ----------
    Allouah, Guerraoui and Stephan, "Towards trustworthy federated learning with untrusted participants", ICML 2025.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("Caf", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the best step."""
        m = round_.updates.shape[0]
        b = check_minority("Caf", self.num_malicious, m)
        return combine(agnostic_weights(gram(round_.updates, round_.global_model), b), round_.updates)


def agnostic_weights(products: FloatMatrix, num_malicious: int) -> FloatVector:
    """Return the shares of the rows in the result of CAF, from their inner products."""
    m = products.shape[0]
    weights: FloatVector = np.ones(m)
    best, shares = np.inf, np.full(m, 1 / m)
    while weights.sum() > m - 2 * num_malicious:
        p = weights / weights.sum()
        means = products @ p
        centred = products - means[:, None] - means[None, :] + p @ means
        root = np.sqrt(p)
        values, vectors = np.linalg.eigh(root[:, None] * centred * root[None, :])
        if values[-1] < best:
            best, shares = float(values[-1]), p
        along = (centred @ (root * vectors[:, -1])) ** 2
        largest = along[weights > 0].max()
        if largest <= 0:  # all rows that count are equal
            break
        weights = weights * np.maximum(1 - along / largest, 0.0)
    return shares


def rounded(distances: FloatMatrix) -> FloatMatrix:
    """Return distances without their rounding errors, so that equal ones tie."""
    scaled: FloatMatrix = distances / (distances.max() or 1.0)
    return scaled.round(12)
