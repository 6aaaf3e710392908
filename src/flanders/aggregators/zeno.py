"""Zeno++: a server with examples of its own accepts the updates that its own step agrees with."""

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
    r"""Average the updates that the server's own step says lower its loss, all brought to the length of that step.

    With the server's displacement v (`Round.root`), each displacement is scaled to its length,
    :math:`\tilde u_c = u_c \|v\| / \|u_c\|`. It is accepted if the descent that it promises is not negative:

    .. math:: \gamma \langle v, \tilde u_c \rangle - \rho \|\tilde u_c\|^2 + \gamma \varepsilon \ge 0.

    In the paper, clients send gradients at any time, v is a gradient on the server's examples that is some steps
    old, and each accepted gradient is applied at once. Here the accepted displacements of a round are averaged, and
    v is trained in the same round. The authors' code takes the square of the length before scaling. The paper, and
    this class, take it after scaling. If nobody is accepted, the global model stays.

    Parameters
    ----------
    gamma
        The learning rate of the paper. Only its ratios to the other two count.
    rho
        How much length costs. The defaults of all three are those of the authors' scripts, so that a client is
        accepted if its cosine with the server's step is at least rho / gamma = 0.01.
    epsilon
        How much descent may be missing.

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
        """It compares clients with the server's own step."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model moved by the average of the accepted displacements."""
        check_root("ZenoPlusPlus", round_)
        g = round_.global_model
        own = float(squared_norms(round_.root[None, :])[0])
        norms = squared_norms(round_.updates, g)
        factors = np.sqrt(own) / np.sqrt(np.maximum(norms, 1e-200)) * (norms > 0)
        along = projections(round_.updates, round_.root[None, :], g)[:, 0] * factors
        descent = self.gamma * along - self.rho * own + self.gamma * self.epsilon
        accepted = (descent >= 0) & (norms > 0)
        if own == 0 or not accepted.any():
            return copied(g)
        return move(g, factors * accepted / accepted.sum(), round_.updates)
