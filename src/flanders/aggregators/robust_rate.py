"""The aggregator `RobustLearningRate`. It reverses a parameter's step if too few clients agree on its direction."""

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
    r"""Average the displacements from the global model. Reverse the average where too few clients agree on a sign.

    .. math:: g_j + \eta_j \sum_c p_c u_{cj}, \qquad \eta_j = \begin{cases} 1 & |\sum_c \operatorname{sign}
              u_{cj}| \ge \theta \\ -1 & \text{otherwise} \end{cases}

    Here g is the global model, and :math:`u_c` is the displacement of client c's model from g. The index j stands
    for a parameter, and the :math:`p_c` are weights that add up to 1. A backdoor moves some parameters in a
    direction in which honest clients do not move them. In these parameters the learning rate :math:`\eta_j` is
    negative, which undoes the step. The signs do not limit how far one client can move a parameter. So use a
    pre-aggregator that limits the lengths of the displacements, e.g. `norm-clipping`.

    Parameters
    ----------
    agreement
        The limit :math:`\theta`. For each parameter, the signs of the clients' displacements are added up. If the
        absolute value of the sum is below the limit, the step of this parameter is reversed. An int is a number of
        clients. A float is a share of the clients, rounded up to whole clients. The limit should be larger than the
        number of malicious clients. The authors take 4 with 10 clients, one of them malicious.
    weighted
        Whether clients count by their weights, as in the paper, or all the same. Default: all the same.

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
        """Return the global model plus the average displacement, reversed in some parameters."""
        g, m = round_.global_model, len(round_.clients)
        shares = round_.weights if self.weighted else np.ones(m)
        moved = move(g, shares / shares.sum(), round_.updates)
        xp = array_api_compat.array_namespace(g)
        agreed = xp.abs(sign_sums(round_.updates, g)) >= resolve_count(self.agreement, m)
        return xp.where(agreed, moved, g - (moved - g))
