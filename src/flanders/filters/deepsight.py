"""DeepSight: a filter that infers from the last layer and from outputs on noise what a model was trained on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, IntVector, to_numpy
from flanders.checks import check_number
from flanders.extras import needing
from flanders.filters.filter import Scores
from flanders.filters.stateless import Stateless
from flanders.linalg.products import cosines_of_gram
from flanders.linalg.selection import take_rows
from flanders.round import Round

SEEDS = (0, 1, 2)
"""The seeds of the random inputs: the paper compares models on three sets of them."""
FEWEST_EXCEED = 0.01
"""The least share of the largest energy that a class needs to count as trained on, with any number of classes."""
SMALLEST = 1e-30
"""The least probability that is divided by."""


@dataclass(frozen=True)
class DeepSight(Stateless):
    r"""Keep the clusters of clients with similar training data, unless many in them trained on few classes.

    The energy of output neuron i is how far client c moved its bias and its weights. It shows on which classes the
    client trained:

    .. math:: C_{ci} = \frac{e_{ci}^2}{\sum_j e_{cj}^2}, \quad e_{ci} = |\Delta b_{ci}| + \sum_h |\Delta w_{cih}|

    A client is suspect if few of its energies exceed a share :math:`\max(0.01, 1/P)` of its largest one (P is the
    number of classes): at most half as many as in the median client. Clients are then clustered by HDBSCAN three
    times: by their energies, by the cosines of their biases' steps, and by how much more likely than the global
    model their models find each class on random inputs (`Round.outputs`). Two clients are as far apart as the share
    of these clusterings that separate them. HDBSCAN on these distances gives the final clusters. A cluster is
    dropped if at least the share `suspects` of its clients is suspect. A client outside all clusters is judged by
    itself. A client's score is the share of suspects in its cluster.

    The energies tell most of clients that train with SGD. Adam's steps are about as long for all classes.

    A round without `outputs` is clustered by the first two alone. A last tensor that does not fit to the one before
    it as biases to weights is taken for biases alone. So is a round that does not name its layers. The paper also
    clips the kept updates: put `norm-clipping` in front of the aggregator. It needs scikit-learn.

    Parameters
    ----------
    suspects
        The share of suspects at which a cluster is dropped. The paper's is a third.
    samples
        The number of random inputs, three times. The paper takes 20,000.
    smallest
        The fewest clients in a cluster.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ten_classes = 1 + 0.1 * rng.normal(size=(9, 10))
    >>> one_class = np.eye(10)[[0, 0, 0]] + 0.01 * rng.normal(size=(3, 10))
    >>> sight = DeepSight()
    >>> sight.select(sight.score(None, Round(np.concatenate([one_class, ten_classes]))))
    array([ 3,  4,  5,  6,  7,  8,  9, 10, 11])

    References
    ----------
    Rieger et al., "DeepSight: mitigating backdoor attacks in federated learning through deep model inspection",
    NDSS 2022.
    """

    suspects: float = 1 / 3
    samples: int = 1000
    smallest: int = 3

    def __post_init__(self) -> None:
        check_number("DeepSight", "suspects", self.suspects, 0, 1)
        check_number("DeepSight", "samples", self.samples, 1, whole=True)
        check_number("DeepSight", "smallest", self.smallest, 2, whole=True)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by the share of suspects in its cluster."""
        order = round_.by_client()  # so that the order in which clients come does not matter
        weights, biases = last_layer_steps(round_, order)
        energies = normalised_energies(weights, biases)
        suspect = few_classes(energies)
        apart = [self._separated(energies), self._separated(cosine_rows(biases), precomputed=True)]
        if round_.outputs is not None:
            noise = [self._separated(likelier(round_, order, seed, self.samples)) for seed in SEEDS]
            apart.append(np.mean(noise, axis=0))
        labels = self._clusters(np.mean(apart, axis=0), precomputed=True)
        shares = suspect.astype(np.float64)
        for label in np.unique(labels[labels >= 0]):
            shares[labels == label] = suspect[labels == label].mean()
        values = np.empty(order.size)
        values[order] = shares
        return Scores(round_.clients, values, suspects=values >= self.suspects)

    def select(self, scores: Scores) -> IntVector:
        """Keep the clients in clusters with fewer suspects."""
        return np.flatnonzero(scores.values < self.suspects)

    def _separated(self, points: FloatMatrix, *, precomputed: bool = False) -> FloatMatrix:
        """Return 0 for two clients of the same cluster, and 1 for all others."""
        labels = self._clusters(points, precomputed=precomputed)
        together = (labels[:, None] == labels[None, :]) & (labels >= 0)[:, None]
        apart: FloatMatrix = np.where(together | np.eye(labels.size, dtype=bool), 0.0, 1.0)
        return apart

    def _clusters(self, points: FloatMatrix, *, precomputed: bool) -> IntVector:
        """Return the cluster of each client, -1 for those in none."""
        if len(points) <= self.smallest:
            return np.full(len(points), -1)
        with needing("sim"):
            from sklearn.cluster import HDBSCAN
        metric = "precomputed" if precomputed else "euclidean"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the default of `copy` will change
            fit = HDBSCAN(min_cluster_size=self.smallest, min_samples=self.smallest, metric=metric, copy=True)
            return np.asarray(fit.fit(points).labels_, dtype=np.int64)


def last_layer_steps(round_: Round, order: IntVector) -> tuple[FloatMatrix, FloatMatrix]:
    """Return how far each client moved the weights `(m, P * h)` and the biases `(m, P)` of the last layer.

    If the last tensor does not fit to the one before it as biases to weights, it is taken for biases alone.
    """
    *before, classes = list(round_.layers.values()) or [round_.global_model.shape[0]]
    weights = before[-1] if before and classes and before[-1] % classes == 0 else 0
    last = slice(round_.global_model.shape[0] - weights - classes, None)
    rows, g = take_rows(round_.updates[:, last], order), round_.global_model[last]
    steps: FloatMatrix = to_numpy(rows).astype(np.float64) - to_numpy(g).astype(np.float64)
    return steps[:, :weights], steps[:, weights:]


def normalised_energies(weights: FloatMatrix, biases: FloatMatrix) -> FloatMatrix:
    """Return the squared energy of each output neuron, as shares that add up to 1; all alike if nothing moved."""
    m, classes = biases.shape
    energy = np.abs(biases) + np.abs(weights).reshape(m, classes, -1).sum(axis=2)
    largest = energy.max(axis=1, keepdims=True)
    squares = np.divide(energy, largest, out=np.ones_like(energy), where=largest > 0) ** 2
    shares: FloatMatrix = squares / squares.sum(axis=1, keepdims=True)
    return shares


def few_classes(energies: FloatMatrix) -> BoolVector:
    """Tell who trained on few classes: at most half as many energies stand out as in the median client."""
    limit = max(FEWEST_EXCEED, 1 / energies.shape[1]) * energies.max(axis=1, keepdims=True)
    exceeding = (energies > limit).sum(axis=1)
    few: BoolVector = exceeding <= np.median(exceeding) / 2
    return few


def cosine_rows(steps: FloatMatrix) -> FloatMatrix:
    """Return the cosine distances between rows."""
    largest = np.abs(steps).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(steps, largest, out=np.zeros_like(steps), where=largest > 0)  # no row drowns the others
    distances: FloatMatrix = np.maximum(1 - cosines_of_gram(scaled @ scaled.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def likelier(round_: Round, order: IntVector, seed: int, samples: int) -> FloatMatrix:
    """Return how many times as likely as the global model each model finds each class on noise, `(m, P)`."""
    assert round_.outputs is not None
    before = np.maximum(round_.outputs(round_.global_model, seed, samples), SMALLEST)
    rows = (round_.outputs(round_.updates[int(i), :], seed, samples) / before for i in order)
    return np.stack([np.nan_to_num(ratios).mean(axis=0) for ratios in rows])
