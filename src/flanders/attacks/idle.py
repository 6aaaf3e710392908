"""An attack by free riders, which are clients that take part without training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, copied, normals_like
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import norm
from flanders.checks import check_number
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class LastGlobalModel:
    """The global model of the last round that the attacker saw."""

    model: Array


@dataclass(frozen=True)
class DeltaFreeRider(Attack):
    r"""Do not train: repeat the last step of the global model, with a little noise to hide it.

    .. math:: x_c = g_t + (g_t - g_{t-1}) + \mathcal{N}(0, (\sigma r)^2 I)

    Client c sends :math:`x_c`. t counts the rounds in which a client of the attacker takes part, and :math:`g_t` is
    the global model at the start of round t. The last step is :math:`g_t - g_{t-1}`, and r is the root mean square
    of its parameters. The paper calls the attack "delta weights" without noise, and "advanced delta weights" with
    noise. In the first round that the attacker sees, there is no last step yet. The attacker's clients then send
    the global model back unchanged.

    Parameters
    ----------
    sigma
        The standard deviation of the noise in each parameter, as a multiple of r.

    Examples
    --------
    >>> view = View(own=np.array([[7.0]]), global_model=np.array([2.0]), num_clients=4)
    >>> memory = DeltaFreeRider().remember(view, view.own)
    >>> DeltaFreeRider(sigma=0.0)(View(np.array([[7.0]]), np.array([2.5]), 4, memory=memory))
    array([[3.]])

    References
    ----------
    Lin, Du and Liu, "Free-riders in federated learning: attacks and defenses", 2019.
    """

    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_number("DeltaFreeRider", "sigma", self.sigma, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the global model with the repeated step, and with different noise for each client."""
        g = view.global_model
        step = 0 * g if view.memory is None else g - view.memory.model
        r = norm(step) / math.sqrt(g.shape[0])
        return (g + step)[None, :] + self.sigma * r * normals_like(view.own, rng)

    def remember(self, view: View, sent: Array) -> LastGlobalModel:
        """Keep the global model."""
        return LastGlobalModel(copied(view.global_model))
