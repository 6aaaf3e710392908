"""Aggregators that select whole models by their distances to each other: Krum, Multi-Krum and Bulyan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, check_products, mean_of
from flanders.arrays import Array, FloatMatrix, IntVector, copied
from flanders.checks import InputError, check_number, resolve_count
from flanders.linalg.columns import means_around_median
from flanders.linalg.neighbours import bulyan_rows, multi_krum_rows
from flanders.linalg.products import squared_distances
from flanders.linalg.selection import reordered
from flanders.round import Round


def check_krum_minority(caller: str, num_malicious: float, m: int) -> int:
    """Return the number b of malicious clients. Raise an error if it is too large for the guarantee of Krum."""
    b = resolve_count(num_malicious, m)
    if m <= 2 * b + 2:
        raise InputError(
            f"{caller}(num_malicious={num_malicious}) needs more than 2b + 2 = {2 * b + 2} updates, got {m}. "
            f"Lower `num_malicious` to at most {max((m - 3) // 2, 0)}, or let the filter keep more clients."
        )
    return b


class ByDistances(Aggregator):
    """The base of the aggregators that select models by their distances."""

    @property
    def checks_products(self) -> bool:
        """True: a row with NaN or infinity has distances that are not finite, and `choose` checks them."""
        return True


def choose(caller: Aggregator, round_: Round, pick: Callable[[FloatMatrix], IntVector]) -> IntVector:
    """Return the rows that the function `pick` selects, in rising order.

    The rows are sorted by client id, and `pick` gets the squared distances between them. So if clients have equal
    scores, those with lower ids are selected.
    """
    order = round_.by_client()
    distances = reordered(squared_distances(round_.updates, round_.global_model), order)
    check_products(caller, round_, distances)
    return np.sort(order[pick(distances)])


@dataclass(frozen=True)
class Krum(ByDistances):
    r"""Take the one model with the smallest sum of squared distances to the m - b - 2 models nearest to it.

    .. math:: g = \theta_{c^*}, \quad c^* = \arg\min_c \sum_{i \in N_c} \|\theta_c - \theta_i\|^2

    Here :math:`\theta_c` is the model of client c, and :math:`N_c` are the m - b - 2 clients nearest to c. m is the
    number of clients. It must be larger than 2b + 2.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

    Examples
    --------
    >>> Krum(num_malicious=1)(np.array([[1.], [2.], [2.5], [3.], [99.]]))
    array([2.5])

    References
    ----------
    Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("Krum", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the model of the selected client."""
        b = check_krum_minority("Krum", self.num_malicious, round_.updates.shape[0])
        row = int(choose(self, round_, lambda distances: multi_krum_rows(distances, b, 1))[0])
        return copied(round_.updates[row, :])


@dataclass(frozen=True)
class MultiKrum(ByDistances):
    r"""Average the `keep` models with the lowest Krum scores.

    .. math:: g = \frac{1}{k} \sum_{c \in K} \theta_c, \quad
              K \text{: the } k \text{ clients with the lowest } \sum_{i \in N_c} \|\theta_c - \theta_i\|^2

    Here :math:`\theta_c` is the model of client c, and :math:`N_c` are the m - b - 2 clients nearest to c. The sum
    is the Krum score of client c. The number of clients m must be larger than 2b + 2.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.
    keep
        The number k of models to average. Default: m - b.
    weighted
        Whether the selected clients count by their weights, or all the same. Default: all the same.

    Examples
    --------
    >>> MultiKrum(num_malicious=1)(np.array([[1.], [2.], [2.5], [3.], [99.]]))
    array([2.125])

    References
    ----------
    Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    num_malicious: float = 0.2
    keep: int | None = None
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("MultiKrum", "num_malicious", self.num_malicious, 0)
        check_number("MultiKrum", "keep", self.keep, 1, whole=True, optional=True)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the selected models."""
        m = round_.updates.shape[0]
        b = check_krum_minority("MultiKrum", self.num_malicious, m)
        keep = m - b if self.keep is None else self.keep
        if keep > m:
            raise InputError(f"MultiKrum(keep={keep}) needs at least {keep} updates, got {m}. Lower `keep`.")
        rows = choose(self, round_, lambda distances: multi_krum_rows(distances, b, keep))
        return mean_of(round_, rows, weighted=self.weighted)


@dataclass(frozen=True)
class Bulyan(ByDistances):
    r"""Select m - 2b models by Krum. Average the m - 4b values of each parameter that are nearest to the median.

    .. math:: g_j = \frac{1}{m - 4b} \sum_{c \in N_j} \theta_{cj}, \quad
              N_j \text{: the } m - 4b \text{ selected models nearest to their median in parameter } j

    Krum selects one model after the other, each time among the models that it has not selected yet.
    :math:`\theta_{cj}` is parameter j of client c's model. The number of clients m must be at least 4b + 3.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

    Examples
    --------
    >>> Bulyan(num_malicious=1)(np.array([[1.], [2.], [3.], [4.], [5.], [6.], [99.]]))
    array([3.])

    References
    ----------
    El Mhamdi et al., "The hidden vulnerability of distributed learning in Byzantium", ICML 2018.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("Bulyan", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return, for each parameter, the mean of the values nearest to the median of the selected models."""
        m = round_.updates.shape[0]
        b = resolve_count(self.num_malicious, m)
        if m < 4 * b + 3:
            raise InputError(
                f"Bulyan(num_malicious={self.num_malicious}) needs at least 4b + 3 = {4 * b + 3} updates, got {m}. "
                f"Lower `num_malicious` to at most {max((m - 3) // 4, 0)}, or let the filter keep more clients."
            )
        rows = choose(self, round_, lambda distances: bulyan_rows(distances, b, m - 2 * b))
        return means_around_median(round_.updates, m - 4 * b, rows)
