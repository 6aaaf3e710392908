"""The aggregator `ZenoPlusPlus` (Zeno++). It averages the updates that agree with the server's own update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, check_root
from flanders.arrays import Array, copied
from flanders.checks import check_number
from flanders.linalg.products import move, projections, squared_norms
from flanders.round import Round


@dataclass(frozen=True)
class ZenoPlusPlus(Aggregator):
    r"""Scale each update to the length of the server's own update, and average those that agree with its direction.

    An update here is a trained model minus the global model. The server has trained its own update v (`Round.root`)
    on its own examples. The update :math:`u_c` of client c is scaled to the length of v:
    :math:`\tilde u_c = u_c \|v\| / \|u_c\|`. The scaled update is accepted if it points far enough in the direction
    of v:

    .. math:: \gamma \langle v, \tilde u_c \rangle - \rho \|\tilde u_c\|^2 + \gamma \varepsilon \ge 0.

    The accepted updates of a round are averaged. If no update is accepted, the global model stays as it is.

    In the paper, clients send gradients at any time, and the server applies each accepted gradient at once. The
    paper's v is the gradient of the loss on the server's examples. This v may be some steps old, since the server
    does not compute it anew at each step.

    The term with :math:`\rho` is a penalty on the squared length of the scaled update, as in the paper. The
    authors' code uses the length of the update before it is scaled.

    Parameters
    ----------
    gamma
        The learning rate :math:`\gamma` of the paper. Which updates are accepted depends only on
        `epsilon` and on the ratio rho / gamma.
    rho
        The penalty :math:`\rho` on the squared length. With the defaults, which are those of the authors' scripts,
        a client is accepted if the cosine of its update with v is at least rho / gamma = 0.01.
    epsilon
        The tolerance :math:`\varepsilon`. A scaled update is accepted if its inner product with v is at least
        :math:`(\rho / \gamma) \|v\|^2 - \varepsilon`.

    Examples
    --------
    >>> rows, root = np.array([[3., 0.], [0.6, 0.8], [-2., 0.]]), np.array([1., 0.])
    >>> ZenoPlusPlus()(rows, root=root)
    array([0.8, 0.4])

    References
    ----------
    Xie, Koyejo and Gupta, "Zeno++: robust fully asynchronous SGD", ICML 2020.
    """

    gamma: float = 0.1
    rho: float = 0.001
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        check_number("ZenoPlusPlus", "gamma", self.gamma, 0)
        check_number("ZenoPlusPlus", "rho", self.rho, 0)
        check_number("ZenoPlusPlus", "epsilon", self.epsilon, 0)

    @property
    def needs_root(self) -> bool:
        """True: clients are compared with the server's own update."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model plus the average of the accepted updates."""
        check_root("ZenoPlusPlus", round_)
        g = round_.global_model
        v_square = float(squared_norms(round_.root[None, :])[0])
        squares = squared_norms(round_.updates, g)
        factors = np.sqrt(v_square) / np.sqrt(np.maximum(squares, 1e-200)) * (squares > 0)
        along = projections(round_.updates, round_.root[None, :], g)[:, 0] * factors
        descent = self.gamma * along - self.rho * v_square + self.gamma * self.epsilon
        accepted = (descent >= 0) & (squares > 0)
        if v_square == 0 or not accepted.any():
            return copied(g)
        return move(g, factors * accepted / accepted.sum(), round_.updates)
