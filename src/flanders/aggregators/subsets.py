"""Aggregators that average the models that are closest together: minimum diameter, minimum spread and CAF."""

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
    r"""Average the m - b models that are closest together: their largest distance is as small as possible (MDA).

    .. math:: \frac{1}{m - b} \sum_{c \in S} \theta_c, \qquad
              S = \arg\min_{|S| = m - b} \max_{i, j \in S} \|\theta_i - \theta_j\|

    Here :math:`\theta_c` is the model of client c, m is the number of clients, and S is a set of m - b clients. The
    best set is found exactly. The search takes long if many clients are malicious and their models lie between
    honest ones. If it takes too long, it ends with an error. If several sets are equally good, the one with the
    lowest client ids is taken.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.
    weighted
        Whether clients count by their weights in the average, or all the same. Default: all the same.

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
        """Return the mean of the best set."""
        m, order = round_.updates.shape[0], round_.by_client()
        b = check_minority("MinimumDiameter", self.num_malicious, m)
        squares = squared_distances(round_.updates, round_.global_model)
        distances = rounded(squares[np.ix_(order, order)])
        return mean_of(round_, order[smallest_diameter(distances, m - b)], weighted=self.weighted)


@dataclass(frozen=True)
class MinimumSpread(Aggregator):
    r"""Average the m - b models that are closest together: their spread is as small as possible (SMEA).

    .. math:: \frac{1}{m - b} \sum_{c \in S} \theta_c, \qquad S = \arg\min_{|S| = m - b}
              \lambda_{\max}\Big(\sum_{c \in S} (\theta_c - \bar\theta_S)(\theta_c - \bar\theta_S)^T\Big)

    Here :math:`\theta_c` is the model of client c, m is the number of clients, S is a set of m - b clients,
    :math:`\bar\theta_S` is the mean of their models, and :math:`\lambda_{\max}` is the largest eigenvalue. This
    eigenvalue is the spread: how much the models vary in the direction in which they vary most. All sets are tried,
    so this aggregator is for few clients: with 20 clients, 4 of them malicious, there are 4,845 sets. If there are
    more than 100,000 sets, an error is raised. The eigenvalues are exact, as in the paper. The library ByzFL only
    estimates them.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.
    weighted
        Whether clients count by their weights in the average, or all the same. Default: all the same.

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
        """Return the mean of the best set."""
        m, order = round_.updates.shape[0], round_.by_client()
        b = check_minority("MinimumSpread", self.num_malicious, m)
        products = gram(round_.updates, round_.global_model)
        rows = smallest_spread(products[np.ix_(order, order)], m - b)
        return mean_of(round_, order[rows], weighted=self.weighted)


@dataclass(frozen=True)
class Caf(Aggregator):
    r"""Step by step, give less weight to models that are far out in the direction of largest variance (CAF).

    CAF stands for covariance bound-agnostic filter. All clients start with weight 1. Each step computes the
    weighted mean of the models, and their weighted covariance matrix. The models vary most along the eigenvector
    with the largest eigenvalue of this matrix. :math:`\tau_c` is the squared distance of client c's model from the
    mean along this eigenvector. The weight of the client is multiplied by :math:`1 - \tau_c / \max \tau`, where the
    maximum is taken over all clients whose weight is not zero. The steps end when the weights of the m clients add
    up to at most m - 2b. The result is the weighted mean of the step in which the largest eigenvalue was smallest.
    The eigenvectors are exact, as in the paper. The library ByzFL only estimates them.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

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
        """Return the weighted mean of the step in which the largest eigenvalue was smallest."""
        m = round_.updates.shape[0]
        b = check_minority("Caf", self.num_malicious, m)
        return combine(agnostic_weights(gram(round_.updates, round_.global_model), b), round_.updates)


def agnostic_weights(products: FloatMatrix, num_malicious: int) -> FloatVector:
    """Return the weight that `Caf` gives to each row. `products` has the inner products of the rows."""
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
        tau = (centred @ (root * vectors[:, -1])) ** 2
        largest = tau[weights > 0].max()
        if largest <= 0:  # all rows whose weight is not zero are equal
            break
        weights = weights * np.maximum(1 - tau / largest, 0.0)
    return shares


def rounded(distances: FloatMatrix) -> FloatMatrix:
    """Return distances divided by the largest one, and rounded, so that equal distances stay equal."""
    scaled: FloatMatrix = distances / (distances.max() or 1.0)
    return scaled.round(12)
