"""The filter `KrumFilter`: the selection of Multi-Krum, in front of any aggregator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import IntVector
from flanders.checks import check_number, resolve_count
from flanders.filters.filter import Scores, check_keep, lowest
from flanders.filters.stateless import Stateless
from flanders.linalg.neighbours import krum_scores
from flanders.linalg.products import squared_distances
from flanders.round import Round


@dataclass(frozen=True)
class KrumFilter(Stateless):
    r"""Keep the clients with the smallest sums of squared distances to their m - b - 2 nearest clients.

    .. math:: \text{score}_c = \sum_{i \in N_c} \|\theta_c - \theta_i\|^2, \quad
              N_c \text{: the } m - b - 2 \text{ nearest models}

    Here :math:`\theta_c` is the model of client c, m is the number of clients, and b is the number of malicious
    clients. If the aggregator is a weighted average, filter and aggregator together are Multi-Krum, with clients
    weighted by their numbers of examples. The guarantee of Krum needs m > 2b + 2. The filter also runs with fewer
    clients.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients, or the fraction of the round.
    keep
        How many clients to keep: a number, or a fraction of the round. By default m - b, but at least one.

    Examples
    --------
    >>> near = KrumFilter(num_malicious=1)
    >>> near.select(near.score(None, Round(np.array([[1.], [2.], [2.5], [3.], [99.]]))))
    array([0, 1, 2, 3])

    References
    ----------
    Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    num_malicious: float = 0.2
    keep: float | None = None

    def __post_init__(self) -> None:
        check_number("KrumFilter", "num_malicious", self.num_malicious, 0)
        check_keep("KrumFilter", self.keep)

    def score(self, state: None, round_: Round) -> Scores | None:
        """Return the Krum scores."""
        m = len(round_.clients)
        if m == 1:  # a single client has no nearest clients
            return Scores(round_.clients, np.zeros(1))
        distances = squared_distances(round_.updates, round_.global_model)
        return Scores(round_.clients, krum_scores(distances, resolve_count(self.num_malicious, m)))

    def select(self, scores: Scores) -> IntVector:
        """Return the clients with the lowest scores."""
        m = len(scores.clients)
        keep = max(1, m - resolve_count(self.num_malicious, m)) if self.keep is None else self.keep
        return lowest(scores, keep)
