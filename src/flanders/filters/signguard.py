"""The filter `SignGuard`. It looks at the lengths of the updates, and at the signs of their parameters."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, IntVector
from flanders.checks import check_number
from flanders.extras import needing
from flanders.filters.filter import Filter, Scores, check_state, draw_seed
from flanders.linalg.products import squared_norms
from flanders.linalg.signs import sign_shares
from flanders.round import Round
from flanders.state import saveable

SHORTEST, LONGEST = 0.1, 3.0
"""The length of an update is normal if it is between these two multiples of the median length of the round. The
numbers are those of the paper."""


@saveable
@dataclass(frozen=True)
class SignGuardState:
    """The memory of `SignGuard`: the secret seed of the sampled parameters, and the number of rounds so far."""

    seed: int
    round_number: int = 0


@dataclass(frozen=True)
class SignGuard(Filter[SignGuardState]):
    r"""Keep clients whose updates have a normal length and normal shares of positive and negative parameters.

    .. math:: \text{score}_c = \|s_c - \bar s\| + [\text{abnormal length}], \quad
              s_c = \text{the shares of } u_{cj} > 0, u_{cj} = 0 \text{ and } u_{cj} < 0

    Here :math:`u_c` is the update of client c: the difference between its model and the global model. The vector
    :math:`s_c` has three numbers: the shares of positive, zero and negative parameters among some random parameters
    of the update. Each of the three numbers is divided by its largest value in the round. Then the method mean
    shift clusters the clients by these numbers. Its bandwidth is estimated by scikit-learn with a quantile of a
    half. The point :math:`\bar s` is the centre of the largest cluster. The last term of the score is 1 if the
    length of the update is abnormal: less than 0.1 times or more than 3 times the median length. Otherwise the last
    term is 0. A client is kept if it is in the largest cluster and the length of its update is normal.

    The paper also clips the kept updates to the median length. To do so, put the pre-aggregator `norm-clipping` in
    front of the aggregator. The filter needs scikit-learn.

    Parameters
    ----------
    share
        The share of all parameters that is sampled in each round.

    Examples
    --------
    >>> rows = np.array([[1.0, 2.0, -1.0], [2.0, 1.0, -1.0], [1.0, 1.0, -2.0], [-1.0, -2.0, 1.0]])
    >>> guard = SignGuard(share=1.0)
    >>> guard.select(guard.score(guard.init(), Round(rows)))
    array([0, 1, 2])

    References
    ----------
    Xu et al., "Byzantine-robust federated learning through collaborative malicious gradient filtering", ICDCS 2022.
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        check_number("SignGuard", "share", self.share, 0, 1)

    def init(self, rng: np.random.Generator | None = None) -> SignGuardState:
        """Return the memory before the first round, with a new secret seed."""
        return SignGuardState(draw_seed(rng))

    def score(self, state: SignGuardState, round_: Round) -> Scores | None:
        """Score each client by its distance to the centre of the largest cluster, plus 1 for an abnormal length."""
        check_state("SignGuard", state, SignGuardState)
        m, d = round_.updates.shape
        rng = np.random.default_rng([state.seed, state.round_number])
        columns = np.sort(rng.choice(d, size=max(1, math.ceil(self.share * d)), replace=False))
        order = round_.by_client()  # so that the order of the clients in the round does not matter
        shares = sign_shares(round_.updates, round_.global_model, columns)[order]
        member, away = largest_cluster(shares / np.maximum(shares.max(axis=0), 1e-8))
        lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
        median = np.median(lengths)
        normal = (lengths >= SHORTEST * median) & (lengths <= LONGEST * median)
        passes, distance = np.empty(m, dtype=bool), np.empty(m)
        passes[order], distance[order] = member, away
        suspects = ~(passes & normal)
        return Scores(round_.clients, distance + ~normal, suspects=suspects)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients in the largest cluster whose updates have a normal length."""
        assert scores.suspects is not None
        return np.flatnonzero(~scores.suspects)

    def amend(
        self, state: SignGuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> SignGuardState:
        """Return the memory with one more round counted, so that the next round samples other parameters."""
        check_state("SignGuard", state, SignGuardState)
        return SignGuardState(state.seed, state.round_number + 1)


def largest_cluster(points: FloatMatrix) -> tuple[BoolVector, np.ndarray]:
    """Return which points are in the largest cluster of mean shift, and all points' distances to its centre.

    If mean shift finds no cluster, all points count as one cluster, and the distances are zero.
    """
    with needing("sim"):
        from sklearn.cluster import MeanShift, estimate_bandwidth
    bandwidth = estimate_bandwidth(points, quantile=0.5)
    if bandwidth <= 0:  # there are at most two points, or at least half of them are the same
        middle = np.median(points, axis=0)
        away = np.linalg.norm(points - middle, axis=1)
        return away == away.min(), away
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if each bin has only one point
        fit = MeanShift(bandwidth=bandwidth, bin_seeding=True, cluster_all=False).fit(points)
    labels = fit.labels_
    if labels.max() < 0:
        return np.ones(len(points), dtype=bool), np.zeros(len(points))
    largest = int(np.argmax(np.bincount(labels[labels >= 0])))
    return labels == largest, np.linalg.norm(points - fit.cluster_centers_[largest], axis=1)
