"""A robust learning rate: parameters in which the clients disagree move the other way."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Aggregator
from flanders.arrays import Array
from flanders.checks import check_number, resolve_count
from flanders.linalg.columns import sign_sums
from flanders.linalg.products import move
from flanders.round import Round


@dataclass(frozen=True)
class RobustLearningRate(Aggregator):
    r"""Average the displacements, and turn the sign of those parameters in which too few clients agree (RLR).

    .. math:: g_j + \eta_j \sum_c p_c u_{cj}, \qquad \eta_j = \begin{cases} 1 & |\sum_c \operatorname{sign}
              u_{cj}| \ge \theta \\ -1 & \text{otherwise} \end{cases}

    A backdoor moves parameters in a direction that honest clients do not share. There the learning rate becomes
    negative, which undoes the step. It has to be used with a limit on lengths, e.g. behind `norm-clipping`: the
    signs do not bound how far one client can pull.

    Parameters
    ----------
    agreement
        The agreement :math:`\theta` that a parameter needs: a number of clients, or a fraction of the round. It has
        to be larger than the number of malicious clients. The authors take 4 where one of 10 clients is malicious.
    weighted
        Whether clients count by their weights (the shares p), as in the paper, or all the same.

    Examples
    --------
    >>> RobustLearningRate(agreement=3)(np.array([[1., 1.], [2., 2.], [3., -9.]]))
    array([2., 2.])

    References
    ----------
    Ozdayi, Kantarcioglu and Gel, "Defending against backdoors in federated learning with robust learning rate",
    AAAI 2021.
    """

    agreement: float = 0.4
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("RobustLearningRate", "agreement", self.agreement, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model moved by the average, with the sign of each parameter's agreement."""
        g, m = round_.global_model, len(round_.clients)
        shares = round_.weights if self.weighted else np.ones(m)
        moved = move(g, shares / shares.sum(), round_.updates)
        xp = array_api_compat.array_namespace(g)
        agreed = xp.abs(sign_sums(round_.updates, g)) >= resolve_count(self.agreement, m)
        return xp.where(agreed, moved, g - (moved - g))
