"""AUROR: a filter that clusters the clients in each parameter that separates them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_number
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.clusters import minority_counts
from flanders.round import Round


@dataclass(frozen=True)
class KMeans(Stateless):
    r"""Drop the clients that are in the smaller of two clusters in most parameters with clear clusters (AUROR).

    .. math:: \text{score}_c = \frac{\#\{j \text{ telling}: \theta_{cj} \text{ is in the smaller cluster of } j\}}
              {\#\{j \text{ telling}\}}

    Each parameter's values are cut in two clusters by exact 2-means. A parameter is telling if the cut
    explains at least `separation` of its variance. A client's score is the share of telling parameters in
    which it is in the smaller cluster. It is dropped if its score exceeds `suspicion`. With `keep`, the lowest
    scores are kept instead. If fewer than the share `least_telling` of all parameters are telling, the score
    is still a share of that many, so that nobody is dropped for a few parameters that split by chance. The filter
    trusts the majority of the round.

    Examples
    --------
    >>> updates = np.array([[1., 0.], [1.1, 5.], [0.9, 0.1], [7., 5.1]])
    >>> KMeans(separation=0.9).score(None, Round(updates)).values
    array([0., 0., 0., 1.])

    References
    ----------
    Shen, Tople and Saxena, "AUROR: defending against poisoning attacks in collaborative deep
    learning systems", ACSAC 2016.
    """

    keep: float | None = None
    separation: float = 0.9
    suspicion: float = 0.5
    least_telling: float = 0.02

    def __post_init__(self) -> None:
        check_keep("KMeans", self.keep)
        check_number("KMeans", "separation", self.separation, 0, 1)
        check_number("KMeans", "suspicion", self.suspicion, 0, 1)
        check_number("KMeans", "least_telling", self.least_telling, 0, 1)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Score each client by how often it is in the smaller cluster."""
        minority, telling = minority_counts(round_.updates, round_.global_model, self.separation)
        values = minority / max(telling, self.least_telling * round_.updates.shape[1], 1.0)
        return Scores(round_.clients, values, suspects=values > self.suspicion)

    def select(self, scores: Scores) -> IntVector:
        """Keep the clients that are rarely in the smaller cluster, or the `keep` lowest scores."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        return np.flatnonzero(scores.values <= self.suspicion)
