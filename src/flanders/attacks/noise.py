"""Two attacks that need only the client's own model: random noise, and the opposite step.

In the formulas, g is the global model. theta_c is what client c has honestly trained, and x_c is what it sends. The
step of a client is its model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, normals_like
from flanders.attacks.attack import Attack, View
from flanders.checks import check_number


@dataclass(frozen=True)
class Gauss(Attack):
    r"""Add independent Gaussian noise to every parameter of the client's own model.

    .. math:: x_c = \theta_c + \mathcal{N}(0, \sigma^2 I)

    Parameters
    ----------
    sigma
        The standard deviation of the noise in each parameter. The FLANDERS paper uses 10.

    Examples
    --------
    >>> view = View(own=np.array([[3.0, 1.0]]), global_model=np.zeros(2), num_clients=4)
    >>> Gauss(sigma=1.0)(view, np.random.default_rng(0)).round(2)
    array([[3.13, 0.87]])

    References
    ----------
    Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    sigma: float = 10.0

    def __post_init__(self) -> None:
        check_number("Gauss", "sigma", self.sigma, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the honest models, with different noise for each client."""
        return view.own + self.sigma * normals_like(view.own, rng)


@dataclass(frozen=True)
class SignFlip(Attack):
    r"""Send the opposite of the client's honest step.

    .. math:: x_c = g - s\,(\theta_c - g)

    Parameters
    ----------
    scale
        The length s of the opposite step, as a multiple of the length of the honest step.

    Examples
    --------
    >>> view = View(own=np.array([[3.0, 1.0]]), global_model=np.array([1.0, 1.0]), num_clients=4)
    >>> SignFlip()(view)
    array([[-1.,  1.]])

    References
    ----------
    Li et al., "RSA: Byzantine-robust stochastic aggregation methods", AAAI 2019.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("SignFlip", "scale", self.scale, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the global model plus the opposite step of each client."""
        g = view.global_model[None, :]
        return g - self.scale * (view.own - g)
