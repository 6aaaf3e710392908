"""SignGuard: a filter that goes by the lengths of the updates and by how many of their parameters rise and fall."""

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
"""Lengths outside these multiples of the median length are abnormal. Both numbers are the paper's."""


@saveable
@dataclass(frozen=True)
class SignGuardState:
    """The secret seed of the sampled parameters, and the number of rounds so far."""

    seed: int
    round_number: int = 0


@dataclass(frozen=True)
class SignGuard(Filter[SignGuardState]):
    r"""Keep clients of normal length in the largest cluster of sign statistics: shares that rise, stay and fall.

    .. math:: \text{score}_c = \|s_c - \bar s\| + [\text{abnormal length}], \quad
              s_c = \text{the shares of } u_{cj} > 0, u_{cj} = 0 \text{ and } u_{cj} < 0

    The statistics are the shares of positive, zero and negative parameters among a random `share` of all parameters
    of the displacements. Each is divided by its largest value in the round. Mean shift clusters them, with the
    bandwidth that scikit-learn estimates for half of the clients. A client passes if it is in the largest cluster
    and its displacement has 0.1 to 3 times the median length. The score is the distance to the centre of the
    largest cluster, plus 1 if the length is abnormal.

    The paper also clips the kept displacements to the median length. Put the pre-aggregator `norm-clipping` behind
    the filter for that. It needs scikit-learn.

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
        """Return the secret seed."""
        return SignGuardState(draw_seed(rng))

    def score(self, state: SignGuardState, round_: Round) -> Scores | None:
        """Score each client by its distance to the largest cluster."""
        check_state("SignGuard", state, SignGuardState)
        m, d = round_.updates.shape
        rng = np.random.default_rng([state.seed, state.round_number])
        columns = np.sort(rng.choice(d, size=max(1, math.ceil(self.share * d)), replace=False))
        order = round_.by_client()  # so that the order in which clients come does not matter
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
        """Keep the clients that pass."""
        assert scores.suspects is not None
        return np.flatnonzero(~scores.suspects)

    def amend(
        self, state: SignGuardState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> SignGuardState:
        """Count the round, so that the next one looks at other parameters."""
        check_state("SignGuard", state, SignGuardState)
        return SignGuardState(state.seed, state.round_number + 1)


def largest_cluster(points: FloatMatrix) -> tuple[BoolVector, np.ndarray]:
    """Return who is in the largest cluster of mean shift, and everyone's distance to its centre."""
    with needing("sim"):
        from sklearn.cluster import MeanShift, estimate_bandwidth
    bandwidth = estimate_bandwidth(points, quantile=0.5)
    if bandwidth <= 0:  # at least half of the points are the same
        middle = np.median(points, axis=0)
        away = np.linalg.norm(points - middle, axis=1)
        return away == away.min(), away
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bins that hold one point each
        found = MeanShift(bandwidth=bandwidth, bin_seeding=True, cluster_all=False).fit(points)
    labels = found.labels_
    if labels.max() < 0:
        return np.ones(len(points), dtype=bool), np.zeros(len(points))
    largest = int(np.argmax(np.bincount(labels[labels >= 0])))
    return labels == largest, np.linalg.norm(points - found.cluster_centers_[largest], axis=1)
