"""The filter `KMeans` (AUROR). For each parameter of the model, it divides the clients into two clusters."""

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
    r"""Cluster the clients in each parameter, and drop those that are often in the smaller of two clusters (AUROR).

    .. math:: \text{score}_c = \frac{\#\{j \text{ telling}: \theta_{cj} \text{ is in the smaller cluster of } j\}}
              {\#\{j \text{ telling}\}}

    For each parameter j, exact 2-means divides the clients' values :math:`\theta_{cj}` into two clusters. The
    parameter is called telling if two things hold: the two clusters do not have the same size, and they explain at
    least the share `separation` of the variance of the values. The score of client c is the share of telling
    parameters in which the client is in the smaller cluster. The filter assumes that most clients of the round are
    honest.

    Parameters
    ----------
    keep
        How many clients to keep: a number, or a fraction of the round. The clients with the lowest scores are kept.
        By default, the clients with a score of at most `suspicion` are kept.
    separation
        The smallest share of the variance that the clusters of a telling parameter explain.
    suspicion
        The largest score of a client that is kept. It is used only without `keep`.
    least_telling
        The smallest denominator of the score, as a share of all parameters. If fewer parameters are telling, the
        score is divided by this number of parameters instead. So no client is dropped because of a few parameters
        that form clusters by chance.

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
        """Score each client by the share of telling parameters in which it is in the smaller cluster."""
        counts, num_telling = minority_counts(round_.updates, round_.global_model, self.separation)
        values = counts / max(num_telling, self.least_telling * round_.updates.shape[1], 1.0)
        return Scores(round_.clients, values, suspects=values > self.suspicion)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the `keep` lowest scores, or with scores of at most `suspicion`."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        return np.flatnonzero(scores.values <= self.suspicion)
