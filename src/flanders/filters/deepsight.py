"""The filter `DeepSight`. It infers from each client's model what data the model was trained on.

For this it looks at the last layer of the model, and at the outputs of the model on random inputs.
"""

from __future__ import annotations

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
"""The seeds of the random inputs. There are three sets of inputs, as in the paper, so there are three seeds."""
FEWEST_EXCEED = 0.01
"""A client counts as trained on a class if the energy of the class (see `DeepSight`) is above this share of the
client's largest energy. With fewer than 100 classes, the share is 1 / (number of classes) instead. The paper uses
the same two shares."""
SMALLEST = 1e-30
"""Probabilities of the global model that are smaller than this are replaced by it, since they are divisors."""


@dataclass(frozen=True)
class DeepSight(Stateless):
    r"""Cluster clients with similar training data. Drop clusters in which many clients trained on few classes.

    The energy of an output neuron shows how much a client trained on the class of this neuron. For client c and
    neuron i the energy is

    .. math:: C_{ci} = \frac{e_{ci}^2}{\sum_j e_{cj}^2}, \quad e_{ci} = |\Delta b_{ci}| + \sum_h |\Delta w_{cih}|.

    Here :math:`\Delta b_{ci}` is the change of the neuron's bias, :math:`\Delta w_{cih}` is the change of its
    weight from input h, and j runs over all output neurons.

    For each client, count the energies that are above :math:`\max(0.01, 1/P)` times the client's largest energy,
    where P is the number of classes. The count is about the number of classes on which the client trained. The
    client is a suspect if its count is at most half of the median count.

    Then the method HDBSCAN clusters the clients in three ways: by their energies, by the cosines between the
    changes of their biases, and by the outputs of their models on random inputs (`Round.outputs`). For the outputs,
    the probability of each class is divided by that of the global model, and this ratio is averaged over the
    inputs. There are three sets of random inputs, and their three clusterings together count as one clustering. The
    distance between two clients is the share of the clusterings that separate them. From these distances, HDBSCAN
    computes the final clusters.

    The score of a client is the share of suspects in its cluster. If the score is at least `suspects`, the cluster
    is dropped. A client outside all clusters counts as a cluster of its own.

    The energies show little if clients train with Adam, since Adam takes steps of about the same length for all
    classes.

    If a round has no `outputs`, its clients are clustered in the first two ways only. The last tensor of the model
    counts as the biases, and the tensor before it as the weights. If the number of weights is not a multiple of the
    number of biases, no weights are used. If the layers are not known, the whole model counts as biases.

    The paper also clips the kept updates. To do so, put the pre-aggregator `norm-clipping` in front of the
    aggregator. The filter needs scikit-learn.

    Parameters
    ----------
    suspects
        The share of suspects at which a cluster is dropped. The default is that of the paper.
    samples
        The number of random inputs in each of three sets. The paper takes 20,000.
    smallest
        The smallest number of clients in a cluster.

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
        order = round_.by_client()  # so that the order of the clients in the round does not matter
        weights, biases = last_layer_steps(round_, order)
        energies = normalised_energies(weights, biases)
        suspect = few_classes(energies)
        apart = [self._separated(energies), self._separated(cosine_rows(biases), precomputed=True)]
        if round_.outputs is not None:
            by_outputs = [self._separated(likelier(round_, order, seed, self.samples)) for seed in SEEDS]
            apart.append(np.mean(by_outputs, axis=0))
        labels = self._clusters(np.mean(apart, axis=0), precomputed=True)
        shares = suspect.astype(np.float64)
        for label in np.unique(labels[labels >= 0]):
            shares[labels == label] = suspect[labels == label].mean()
        values = np.empty(order.size)
        values[order] = shares
        return Scores(round_.clients, values, suspects=values >= self.suspects)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients of the clusters that are not dropped."""
        return np.flatnonzero(scores.values < self.suspects)

    def _separated(self, points: FloatMatrix, *, precomputed: bool = False) -> FloatMatrix:
        """Return a matrix with 0 for two clients of the same cluster, and 1 for all other pairs.

        `points` has a row for each client, or distances between the clients if `precomputed` is true.
        """
        labels = self._clusters(points, precomputed=precomputed)
        together = (labels[:, None] == labels[None, :]) & (labels >= 0)[:, None]
        apart: FloatMatrix = np.where(together | np.eye(labels.size, dtype=bool), 0.0, 1.0)
        return apart

    def _clusters(self, points: FloatMatrix, *, precomputed: bool) -> IntVector:
        """Return the label of each client's cluster, or -1 if the client is outside all clusters."""
        if len(points) <= self.smallest:
            return np.full(len(points), -1)
        with needing("sim"):
            from sklearn.cluster import HDBSCAN
        metric = "precomputed" if precomputed else "euclidean"
        fit = HDBSCAN(min_cluster_size=self.smallest, min_samples=self.smallest, metric=metric, copy=True)
        return np.asarray(fit.fit(points).labels_, dtype=np.int64)


def last_layer_steps(round_: Round, order: IntVector) -> tuple[FloatMatrix, FloatMatrix]:
    """Return by how much each client changed the weights `(m, P * h)` and the biases `(m, P)` of the last layer.

    The last tensor counts as the biases of P classes, and the tensor before it as the weights from h inputs. If the
    number of weights is not a multiple of P, no weights are returned. `order` is the order of the clients in the
    results.
    """
    *before, classes = list(round_.layers.values()) or [round_.global_model.shape[0]]
    weights = before[-1] if before and classes and before[-1] % classes == 0 else 0
    last = slice(round_.global_model.shape[0] - weights - classes, None)
    rows, g = take_rows(round_.updates[:, last], order), round_.global_model[last]
    steps: FloatMatrix = to_numpy(rows).astype(np.float64) - to_numpy(g).astype(np.float64)
    return steps[:, :weights], steps[:, weights:]


def normalised_energies(weights: FloatMatrix, biases: FloatMatrix) -> FloatMatrix:
    """Return the energies of each client's output neurons, `(m, P)`. Each row adds up to 1.

    If a client has changed nothing, all its energies are equal.
    """
    m, classes = biases.shape
    energy = np.abs(biases) + np.abs(weights).reshape(m, classes, -1).sum(axis=2)
    largest = energy.max(axis=1, keepdims=True)
    squares = np.divide(energy, largest, out=np.ones_like(energy), where=largest > 0) ** 2
    shares: FloatMatrix = squares / squares.sum(axis=1, keepdims=True)
    return shares


def few_classes(energies: FloatMatrix) -> BoolVector:
    """Return which clients trained on few classes: on at most half as many classes as the median client."""
    limit = max(FEWEST_EXCEED, 1 / energies.shape[1]) * energies.max(axis=1, keepdims=True)
    exceeding = (energies > limit).sum(axis=1)
    few: BoolVector = exceeding <= np.median(exceeding) / 2
    return few


def cosine_rows(steps: FloatMatrix) -> FloatMatrix:
    """Return the cosine distance between every two rows."""
    largest = np.abs(steps).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(steps, largest, out=np.zeros_like(steps), where=largest > 0)  # so that no square overflows
    distances: FloatMatrix = np.maximum(1 - cosines_of_gram(scaled @ scaled.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def likelier(round_: Round, order: IntVector, seed: int, samples: int) -> FloatMatrix:
    """Return the probability of each class on random inputs, divided by that of the global model, `(m, P)`.

    The ratios are averaged over `samples` inputs, which follow from `seed`.
    """
    assert round_.outputs is not None
    before = np.maximum(round_.outputs(round_.global_model, seed, samples), SMALLEST)
    rows = (round_.outputs(round_.updates[int(i), :], seed, samples) / before for i in order)
    return np.stack([np.nan_to_num(ratios).mean(axis=0) for ratios in rows])
