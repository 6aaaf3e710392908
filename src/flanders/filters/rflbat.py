"""The filter `Rflbat`. It clusters the clients by the first two principal components of their updates."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from flanders.arrays import BoolVector, FloatMatrix, IntVector
from flanders.checks import check_number
from flanders.extras import needing
from flanders.filters.filter import Scores
from flanders.filters.stateless import Stateless
from flanders.linalg.clusters import num_by_gap
from flanders.linalg.products import cosines_of_gram, gram
from flanders.linalg.spectral import principal_components
from flanders.round import Round

MOST_CLUSTERS, REFERENCES = 9, 5
"""The largest number of clusters that is tried, and the number of random sets of points in the gap statistic.

Higher numbers would take longer.
"""


@dataclass(frozen=True)
class Rflbat(Stateless):
    r"""Cluster the updates, keep the cluster whose updates are least alike, and drop its outliers (RFLBAT).

    .. math:: \text{drop } c \text{ if } \sum_i \|p_c - p_i\| \ge \text{far} \cdot
              \operatorname{median}_k \sum_i \|p_k - p_i\|

    Here :math:`p_c` are the first two principal components of client c's update, and i and k run over the clients.
    A client for which the inequality holds is called an outlier. There are three steps:

    1. Outliers among all clients are dropped.
    2. The other clients are clustered by k-means. The gap statistic gives the number of clusters (see
       `clusters_of`). For each client, the cosines of its update with all updates in its cluster are averaged. The
       cluster with the lowest median of these averages is kept, since the updates of colluding clients are more
       alike than those of honest clients. Clusters of one client do not count.
    3. Outliers in the kept cluster are dropped. In this step, i and k run over the clients of this cluster, and
       `near` replaces `far`.

    The score is 2 for a client that step 1 drops, 1 for a client that a later step drops, and 0 for a client that
    is kept. The filter needs scikit-learn.

    Parameters
    ----------
    far
        The factor in step 1.
    near
        The factor in step 3.

    Examples
    --------
    >>> rows = np.concatenate([np.eye(12), np.full((1, 12), 500.0)])
    >>> Rflbat().score(None, Round(rows)).values[-1]
    np.float64(2.0)

    References
    ----------
    Wang et al., "RFLBAT: a robust federated learning algorithm against backdoor attack", 2022.
    """

    far: float = 10.0
    near: float = 4.0

    def __post_init__(self) -> None:
        check_number("Rflbat", "far", self.far, 1)
        check_number("Rflbat", "near", self.near, 1)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by the step that drops it."""
        order = round_.by_client()  # so that the order of the clients in the round does not matter
        products = gram(round_.updates, round_.global_model)[np.ix_(order, order)]
        points = principal_components(products)
        values = np.full(order.size, 2.0)
        left = np.flatnonzero(inliers(points, self.far))
        values[left] = 1.0
        chosen = left[least_uniform(points[left], cosines_of_gram(products)[np.ix_(left, left)])]
        values[chosen[inliers(points[chosen], self.near)]] = 0.0
        scores = np.empty(order.size)
        scores[order] = values
        return Scores(round_.clients, scores, suspects=scores > 0)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients that no step drops."""
        return np.flatnonzero(scores.values == 0)


def inliers(points: FloatMatrix, factor: float) -> BoolVector:
    """Return which points have a sum of distances to all others below `factor` times the median sum.

    A point with a sum of zero is always an inlier, even if the median sum is zero.
    """
    sums = np.linalg.norm(points[:, None] - points[None, :], axis=2).sum(axis=1)
    near: BoolVector = (sums < factor * np.median(sums)) | (sums == 0)
    return near


def least_uniform(points: FloatMatrix, cosines: FloatMatrix) -> IntVector:
    """Return the rows of the cluster whose updates are least alike, or all rows if no cluster has two clients."""
    labels = clusters_of(points)
    best, chosen = np.inf, np.arange(len(points))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        alike = float(np.median(cosines[np.ix_(rows, rows)].mean(axis=1)))
        if rows.size > 1 and alike < best:
            best, chosen = alike, rows
    return chosen


def clusters_of(points: FloatMatrix) -> IntVector:
    """Return the label of each point's cluster. The gap statistic gives the number of clusters (`num_by_gap`).

    The cost of k clusters is the sum of squared distances of the points to the centres of their clusters.
    """
    distinct = len(np.unique(points, axis=0))
    if distinct < 3:
        return np.unique(points, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
    most = min(MOST_CLUSTERS, distinct - 1)
    rng = np.random.default_rng(0)
    low, high = points.min(axis=0), points.max(axis=0)
    clusterings = [k_means(points, k) for k in range(1, most + 1)]
    random_sets = [rng.uniform(low, high, size=points.shape) for _ in range(REFERENCES)]
    random_costs = np.array([[k_means(x, k)[0] for k in range(1, most + 1)] for x in random_sets])
    return clusterings[num_by_gap(np.array([cost for cost, _ in clusterings]), random_costs) - 1][1]


def k_means(points: FloatMatrix, k: int) -> tuple[float, IntVector]:
    """Return the sum of squared distances to the centres of k clusters, and the label of each point's cluster."""
    with needing("sim"):
        from sklearn.cluster import KMeans as Clusters
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if there are fewer distinct points than clusters
        fit = Clusters(k, n_init=1, random_state=0).fit(points)
    return float(fit.inertia_), np.asarray(fit.labels_, dtype=np.int64)
