"""Pre-aggregators, which prepare models for an aggregator: nearest-neighbour mixing, bucketing and clipping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import PreAggregator, check_minority, check_products
from flanders.arrays import FloatVector
from flanders.checks import check_number
from flanders.linalg.neighbours import are_nearest
from flanders.linalg.products import clip_factors, combine, scaled_around, squared_distances, squared_norms
from flanders.linalg.selection import reordered
from flanders.round import Round


@dataclass(frozen=True)
class Nnm(PreAggregator):
    r"""Replace each model by the average of the m - b models nearest to it, itself included.

    .. math:: \theta_c \mapsto \frac{1}{m - b} \sum_{i \in N_c} \theta_i, \quad
              N_c \text{: the } m - b \text{ models nearest to } \theta_c

    Here :math:`\theta_c` is the model of client c, and m is the number of clients.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

    Examples
    --------
    >>> Nnm(num_malicious=1)(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))[:, 0]
    array([2.5, 2.5, 5.5])

    References
    ----------
    Allouah et al., "Fixing by mixing", AISTATS 2023.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("Nnm", "num_malicious", self.num_malicious, 0)

    @property
    def checks_products(self) -> bool:
        """True: a row with NaN or infinity has distances that are not finite."""
        return True

    def prepare(self, round_: Round, rng: np.random.Generator) -> Round:
        """Return the round with the averages instead of the models."""
        m = round_.updates.shape[0]
        b = check_minority("Nnm", self.num_malicious, m)
        order = round_.by_client()  # if two models are equally near, that of the client with the lower id is taken
        distances = reordered(squared_distances(round_.updates, round_.global_model), order)
        check_products(self, round_, distances)
        mixing = reordered(are_nearest(distances, m - b) / (m - b), order.argsort())
        return round_.replace(combine(mixing, round_.updates))


@dataclass(frozen=True)
class Bucketing(PreAggregator):
    r"""Divide the models at random into buckets of `size`, and replace each bucket by its average.

    .. math:: \bar\theta_k = \frac{\sum_{c \in B_k} n_c \theta_c}{\sum_{c \in B_k} n_c}, \quad
              B_1, B_2, \dots \text{: a random partition of the clients}

    Here :math:`\theta_c` is the model of client c, :math:`n_c` is the client's weight, and :math:`\bar\theta_k` is
    the average of bucket k. The aggregator gets each bucket as one client, with the total weight of the bucket. The
    ids of these clients are the numbers of the buckets.

    Parameters
    ----------
    size
        The number of models in a bucket. The last bucket may have fewer models.

    Examples
    --------
    >>> Bucketing(size=2)(np.array([[1.], [2.], [3.], [4.]]), rng=np.random.default_rng(0))
    array([[2.],
           [3.]])

    References
    ----------
    Karimireddy et al., "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    size: int = 2

    def __post_init__(self) -> None:
        check_number("Bucketing", "size", self.size, 1, whole=True)

    def prepare(self, round_: Round, rng: np.random.Generator) -> Round:
        """Return the round with the averages of the buckets."""
        m = round_.updates.shape[0]
        # Sort by client id before shuffling, so that the order of the rows does not matter.
        shuffled = round_.by_client()[rng.permutation(m)]
        buckets = [shuffled[i : i + self.size] for i in range(0, m, self.size)]
        averaging = np.zeros((len(buckets), m))
        for bucket, rows in enumerate(buckets):
            averaging[bucket, rows] = round_.weights[rows]
        weights = averaging.sum(axis=1)
        for weightless in np.flatnonzero(weights == 0):  # in this bucket, all models count the same
            averaging[weightless, buckets[weightless]] = 1.0
        rows_ = combine(averaging / averaging.sum(axis=1, keepdims=True), round_.updates)
        return round_.replace(rows_, tuple(range(len(buckets))), weights)


@dataclass(frozen=True)
class NormClipping(PreAggregator):
    r"""Shorten every displacement from the global model to a length of at most `radius`.

    .. math:: \theta_c \mapsto g + \min\left(1, \frac{r}{\|\theta_c - g\|}\right) (\theta_c - g)

    Here :math:`\theta_c` is the model of client c, and g is the global model.

    Parameters
    ----------
    radius
        The largest length r of a displacement. Default: the median length of the displacements of the round.

    Examples
    --------
    >>> NormClipping(radius=5.0)(np.array([[3., 4.], [30., 40.]]))
    array([[3., 4.],
           [3., 4.]])

    References
    ----------
    Sun et al., "Can you really backdoor federated learning?", 2019.
    """

    radius: float | None = None

    def __post_init__(self) -> None:
        check_number("NormClipping", "radius", self.radius, 0, optional=True)

    def prepare(self, round_: Round, rng: np.random.Generator) -> Round:
        """Return the models with clipped displacements."""
        lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
        radius = float(np.median(lengths)) if self.radius is None else self.radius
        return clipped_round(round_, lengths, radius)


@dataclass(frozen=True)
class Arc(PreAggregator):
    r"""Shorten the k longest displacements from the global model to the length of the next longest one (ARC).

    ARC stands for adaptive robust clipping. With m clients, of which b are malicious,
    :math:`k = \lfloor 2 \frac{b}{m} (m - b) \rfloor`.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

    Examples
    --------
    >>> Arc(num_malicious=1)(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))[2]
    array([4.41004009, 5.04004582, 5.67005155])

    References
    ----------
    Allouah et al., "Adaptive gradient clipping for robust federated learning", ICLR 2025.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("Arc", "num_malicious", self.num_malicious, 0)

    def prepare(self, round_: Round, rng: np.random.Generator) -> Round:
        """Return the models with clipped displacements."""
        m = round_.updates.shape[0]
        b = check_minority("Arc", self.num_malicious, m)
        lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
        k = 2 * b * (m - b) // m
        return clipped_round(round_, lengths, float(np.sort(lengths)[m - k - 1]))


def clipped_round(round_: Round, lengths: FloatVector, radius: float) -> Round:
    """Return the round with displacements of at most the length `radius`. `lengths` has their lengths before."""
    factors = clip_factors(lengths, radius)
    if bool(np.all(factors == 1.0)):
        return round_
    return round_.replace(scaled_around(round_.updates, round_.global_model, factors))
