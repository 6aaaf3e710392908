"""The aggregator `FedAvg`: the weighted average of the models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator
from flanders.arrays import Array
from flanders.linalg.products import mean
from flanders.round import Round


@dataclass(frozen=True)
class FedAvg(Aggregator):
    r"""Average the models, weighted by the clients' numbers of examples. This is no defence at all.

    .. math:: g = \frac{\sum_c n_c \theta_c}{\sum_c n_c}

    Here :math:`\theta_c` is the model of client c, and :math:`n_c` is the client's weight.

    Examples
    --------
    >>> FedAvg()(np.array([[0., 4.], [4., 0.]]), np.array([3, 1]))
    array([1., 3.])

    References
    ----------
    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017.
    """

    @property
    def shows_bad_rows(self) -> bool:
        """True: a row with NaN or infinity makes the average not finite."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        r"""Return :math:`\sum_c n_c \theta_c / \sum_c n_c`."""
        return mean(round_.updates, round_.weights)
