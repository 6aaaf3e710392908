"""The filter `FlameFilter`: the clustering step of FLAME, in front of any aggregator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_choice
from flanders.filters.filter import Scores
from flanders.filters.stateless import Stateless
from flanders.linalg.linkage import majority_heights
from flanders.linalg.products import cosine_distances_between
from flanders.round import Round

ANGLES = ("models", "updates")


@dataclass(frozen=True)
class FlameFilter(Stateless):
    r"""Keep the largest group of models that point in similar directions (the clustering of FLAME).

    .. math:: d_{ij} = 1 - \cos(\theta_i, \theta_j)

    The method HDBSCAN clusters the models :math:`\theta` by these cosine distances. It joins the two nearest groups
    of clients again and again, until a group has more than half of the clients. This group is the only cluster, and
    all clients outside it are dropped. The score of a client is the cosine distance at which it joins this group,
    or would join it later. The aggregator `flame` is the whole method, with clipping and noise.

    Parameters
    ----------
    angles
        Which vectors the cosines are computed from. `"models"`: the models, as in the paper. `"updates"`: the
        differences between the models and the global model, as in many implementations.

    Examples
    --------
    >>> near = FlameFilter()
    >>> near.select(near.score(None, Round(np.array([[1., 0.], [2., 0.1], [1., 0.1], [0., 1.]]))))
    array([0, 1, 2])

    References
    ----------
    Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022.
    """

    angles: str = "models"

    def __post_init__(self) -> None:
        check_choice("FlameFilter", "angles", self.angles, ANGLES)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by the cosine distance at which it joins the cluster."""
        center = None if self.angles == "models" else round_.global_model
        heights = majority_heights(cosine_distances_between(round_.updates, center))
        return Scores(round_.clients, heights, suspects=heights > heights.min())

    def select(self, scores: Scores) -> IntVector:
        """Return the clients in the cluster."""
        return np.flatnonzero(scores.values == scores.values.min())
