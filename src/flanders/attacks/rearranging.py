"""Two attacks that mislead simple statistics.

`Rearranged` keeps the length of a step and its number of positive values. `ByzMean` determines the mean of all
models of the round.

In the formulas, g is the global model and mu the mean of the honest models that the attacker knows. theta_c is what
client c has honestly trained, and x_c is what it sends. A step is a model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, mean_displacement
from flanders.attacks.statistical import little_is_enough_z
from flanders.checks import check_number
from flanders.linalg.columns import column_moments


@dataclass(frozen=True)
class Rearranged(Attack):
    r"""Rearrange the values of each client's own step to oppose the honest mean step as much as possible.

    .. math:: x_c = g + P u_c, \quad P = \arg\min_{P \text{ a permutation}} \langle P u_c, \mu - g \rangle

    :math:`u_c = \theta_c - g` is the client's own step, and :math:`\mu - g` is the honest mean step. The
    permutation P puts the largest value of the own step where the honest mean step is smallest, the second largest
    value where it is second smallest, and so on. No other order of the values has a smaller inner product with the
    honest mean step. The length of the step stays the same, and so do the numbers of its positive, zero and
    negative values. The filter SignGuard looks at the length and at these three numbers.

    Examples
    --------
    >>> view = View(own=np.array([[3.0, -1.0, 2.0]]), global_model=np.zeros(3), num_clients=1)
    >>> Rearranged()(view)
    array([[-1.,  3.,  2.]])

    References
    ----------
    This package.
    """

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the rearranged models."""
        xp = array_api_compat.array_namespace(view.own)
        steps = xp.sort(view.own - view.global_model[None, :], axis=1)
        falling = xp.argsort(-mean_displacement(view), stable=True)
        places = xp.argsort(falling, stable=True)  # the largest mean gets the smallest value
        return view.global_model[None, :] + xp.take(steps, places, axis=1)


@dataclass(frozen=True)
class ByzMean(Attack):
    r"""Make the average of the round equal to a model that half of the malicious clients send.

    .. math:: x_1 = \mu - z \sigma, \qquad x_2 = \frac{(m - b_1)\, x_1 - \sum_{c \text{ honest}} \theta_c}{b_2}

    The round has m clients, b of them malicious. The first :math:`b_1 = \lfloor b / 2 \rfloor` malicious clients
    send :math:`x_1`, which is the model of the attack `Lie` and looks normal. :math:`\sigma` is the standard
    deviation of each parameter over the honest models. The other :math:`b_2 = b - b_1` malicious clients send
    :math:`x_2`, which makes the average of all m clients equal to :math:`x_1`. If only one client is malicious, it
    sends :math:`x_2`. An attacker that knows only its own models uses them in place of the other clients' models.

    Parameters
    ----------
    z
        By how many standard deviations the mean is shifted in :math:`x_1`. Default: the z of `Lie`.

    Examples
    --------
    >>> own, benign = np.zeros((2, 1)), np.array([[1.0], [3.0]])
    >>> view = View(own=own, global_model=np.zeros(1), num_clients=4, benign=benign)
    >>> ByzMean(z=1.0)(view)
    array([[ 1.],
           [-1.]])

    References
    ----------
    Xu et al., "Byzantine-robust federated learning through collaborative malicious gradient filtering", ICDCS 2022.
    """

    z: float | None = None

    def __post_init__(self) -> None:
        check_number("ByzMean", "z", self.z, 0, optional=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return a row for each malicious client: first the copies of x_1, then the copies of x_2."""
        b, m = view.num_malicious, view.num_clients
        z = little_is_enough_z(m, b) if self.z is None else self.z
        offset, sigma = column_moments(view.honest, view.global_model)
        b_1 = b // 2
        b_2 = b - b_1
        step_1 = offset - z * sigma
        step_2 = ((m - b_1) * step_1 - (m - b) * offset) / b_2
        g = view.global_model
        if b_1 == 0:
            return copies(g + step_2, b)
        return array_api_compat.array_namespace(g).concat([copies(g + step_1, b_1), copies(g + step_2, b_2)])
