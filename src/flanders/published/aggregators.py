"""Multi-Krum and Bulyan as the code published with the FLANDERS paper computes them, to repeat the paper's numbers.

They accept any number of malicious clients. To judge a defence, use `flanders.aggregators` instead. The aggregators
there refuse numbers for which their guarantees do not hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, mean_of
from flanders.aggregators.krum import Bulyan, choose
from flanders.arrays import Array
from flanders.checks import check_number, resolve_count
from flanders.linalg.neighbours import multi_krum_rows
from flanders.linalg.products import mean
from flanders.round import Round


@dataclass(frozen=True)
class MultiKrumReference(Aggregator):
    r"""Average the `keep` models with the lowest Krum scores, no matter how many models are malicious.

    .. math:: g = \frac{\sum_{c \in K} n_c \theta_c}{\sum_{c \in K} n_c}, \quad
              K \text{: the clients with the lowest } \sum_{i \in N_c} \|\theta_c - \theta_i\|^2

    g is the new global model. :math:`\theta_c` is the model of client c, and :math:`n_c` its weight. The sum over
    :math:`N_c` is the Krum score of client c. There are m models, and b of them count as malicious
    (`num_malicious`, a number or a fraction of m). :math:`N_c` has the m - b - 2 models that are nearest to
    :math:`\theta_c`, but at least one. It does not have :math:`\theta_c` itself. If there are fewer than `keep`
    models, all are averaged. The paper's code sets `keep` to 3, or to 10 if the filter FLANDERS comes before
    Multi-Krum.

    Examples
    --------
    >>> MultiKrumReference(num_malicious=4, keep=2)(np.array([[1.], [2.], [2.5], [3.5], [99.]]))
    array([2.25])

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning
    attacks via multidimensional time series anomaly detection".
    """

    num_malicious: float = 0.2
    keep: int = 3

    def __post_init__(self) -> None:
        check_number("MultiKrumReference", "num_malicious", self.num_malicious, 0)
        check_number("MultiKrumReference", "keep", self.keep, 1, whole=True)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the weighted mean of the chosen models."""
        m = round_.updates.shape[0]
        b = min(resolve_count(self.num_malicious, m), m)
        rows = choose(self, round_, lambda distances: multi_krum_rows(distances, b, self.keep))
        return mean_of(round_, rows, weighted=True)


@dataclass(frozen=True)
class BulyanReference(Aggregator):
    r"""Apply Bulyan if there are enough clients for its guarantee. Otherwise average all models (FedAvg).

    .. math:: g = \begin{cases} \texttt{Bulyan} & m \ge 4b + 3 \\ \texttt{FedAvg} & \text{otherwise} \end{cases}

    g is the new global model. There are m models, and b of them count as malicious (`num_malicious`, a number or a
    fraction of m). Bulyan's guarantee needs m >= 4b + 3.

    Examples
    --------
    >>> BulyanReference(num_malicious=2)(np.array([[1.], [2.], [3.]]))
    array([2.])

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning
    attacks via multidimensional time series anomaly detection".
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("BulyanReference", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the model of Bulyan, or the weighted average if Bulyan's guarantee does not hold."""
        m = round_.updates.shape[0]
        b = resolve_count(self.num_malicious, m)
        if m < 4 * b + 3:
            return mean(round_.updates, round_.weights)
        return Bulyan(b).aggregate(round_, rng)
