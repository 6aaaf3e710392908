"""Aggregators that treat each parameter of the model separately: median, trimmed mean, mean around the median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, check_minority
from flanders.arrays import Array, FloatVector
from flanders.checks import InputError, check_number
from flanders.linalg.columns import column_medians, means_around_median, trimmed_means, weighted_trimmed_means
from flanders.round import Round


@dataclass(frozen=True)
class Median(Aggregator):
    r"""Take the median of each parameter.

    .. math:: g_j = \operatorname{median}_c \theta_{cj}

    Here :math:`\theta_{cj}` is parameter j of client c's model. The median is robust if fewer than half of the
    clients are malicious.

    Parameters
    ----------
    weighted
        If true, the weighted median is taken: half of the total weight is below it, and half above. Default: false.

    Examples
    --------
    >>> Median()(np.array([[1., 9.], [2., 2.], [900., 4.]]))
    array([2., 4.])

    References
    ----------
    Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018.
    """

    weighted: bool = False

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the median of each column, weighted if `weighted` is true."""
        if self.weighted and not is_uniform(round_.weights):
            return weighted_trimmed_means(round_.updates, round_.weights, 0.5)
        return column_medians(round_.updates)


@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    r"""Average each parameter after dropping its `trim` lowest and its `trim` highest values.

    .. math:: g_j = \frac{1}{m - 2k} \sum_{i = k + 1}^{m - k} \theta_{(i)j}, \quad
              \theta_{(1)j} \le \dots \le \theta_{(m)j}

    Here m is the number of clients, and k is `trim`. :math:`\theta_{(1)j}, \dots, \theta_{(m)j}` are the values of
    parameter j in the models of the clients, from the lowest to the highest.

    Parameters
    ----------
    trim
        The number k of values to drop on each side. A float is a share of the m clients, rounded down to whole
        clients. The FLANDERS paper uses 0.2.
    weighted
        If true, the share k / m of the total weight is dropped on each side instead of k values, and the average of
        the rest is weighted. Default: false.

    Examples
    --------
    >>> TrimmedMean(trim=1)(np.array([[1., 9.], [2., 2.], [3., 3.], [900., 4.]]), np.ones(4))
    array([2.5, 3.5])

    References
    ----------
    Yin et al., "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018.
    """

    trim: float = 0.2
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("TrimmedMean", "trim", self.trim, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the values that are left in each column."""
        m = round_.updates.shape[0]
        # 1e-9 is added, since in floats 0.29 * 100 is a little less than 29.
        trim = int(self.trim if isinstance(self.trim, int | np.integer) else self.trim * m + 1e-9)
        if 2 * trim >= m:
            raise InputError(
                f"TrimmedMean(trim={self.trim}) needs more than {2 * trim} updates, got {m}. "
                f"Lower `trim` to at most {(m - 1) // 2}, or let the filter keep more clients."
            )
        if self.weighted and not is_uniform(round_.weights):
            return weighted_trimmed_means(round_.updates, round_.weights, trim / m)
        return trimmed_means(round_.updates, trim)


@dataclass(frozen=True)
class MeanAroundMedian(Aggregator):
    r"""Average, for each parameter, the m - b values that are nearest to the median.

    .. math:: g_j = \frac{1}{m - b} \sum_{c \in N_j} \theta_{cj}, \quad
              N_j \text{: the } m - b \text{ values nearest to } \operatorname{median}_c \theta_{cj}

    Here m is the number of clients, and :math:`\theta_{cj}` is parameter j of client c's model. If a value below
    the median and one above it are equally near, the lower one is taken. The FLANDERS paper calls this aggregator
    trimmed mean.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.

    Examples
    --------
    >>> MeanAroundMedian(num_malicious=1)(np.array([[1.], [2.], [4.], [9.]]))
    array([2.33333333])

    References
    ----------
    Xie et al., "Generalized Byzantine-tolerant SGD", 2018.
    """

    num_malicious: float = 0.2

    def __post_init__(self) -> None:
        check_number("MeanAroundMedian", "num_malicious", self.num_malicious, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the values that are kept in each column."""
        m = round_.updates.shape[0]
        b = check_minority("MeanAroundMedian", self.num_malicious, m)
        return means_around_median(round_.updates, m - b)


def is_uniform(weights: FloatVector) -> bool:
    """Whether all weights are the same."""
    return bool(np.all(weights == weights[0]))
