"""The attacks LIE ("a little is enough") and IPM (inner product manipulation).

LIE hides in the spread of the honest models. IPM sends the opposite of the mean honest step. A step is a model
minus the global model. A round has m clients. Of these, b are malicious, and all send the same model x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from flanders.arrays import Array
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, mean_displacement
from flanders.checks import check_number
from flanders.linalg.columns import column_moments

MAJORITY_Z = 1.5
"""The z of LIE if at least half of the clients are malicious. LIE shifts the honest mean by z standard deviations.
The formula of `little_is_enough_z` is only for fewer malicious clients. The authors' code has 1.5 as its
default."""


def little_is_enough_z(num_clients: int, num_malicious: int) -> float:
    r"""Return by how many standard deviations LIE shifts the mean, :math:`\Phi^{-1}((m - b - s)/(m - b))`.

    :math:`\Phi` is the standard normal distribution. The attacker needs s = floor(m/2 + 1) - b honest clients on
    its side for a majority. For b >= m/2 the formula is not used, and z is `MAJORITY_Z`.

    Examples
    --------
    >>> round(little_is_enough_z(50, 24), 2)
    1.43
    """
    m, b = num_clients, num_malicious
    if 2 * b >= m:
        return MAJORITY_Z
    s = math.floor(m / 2 + 1) - b
    return NormalDist().inv_cdf((m - b - s) / (m - b))


@dataclass(frozen=True)
class Lie(Attack):
    r"""Shift the honest mean by a small number of standard deviations in each parameter. The result looks honest.

    .. math:: x = \mu - z \sigma, \quad z = \Phi^{-1}\left(\frac{m - b - s}{m - b}\right), \quad
              s = \lfloor m/2 + 1 \rfloor - b

    The vectors :math:`\mu` and :math:`\sigma` are the mean and the (population) standard deviation of each
    parameter over the honest models that the attacker knows. :math:`\Phi` is the standard normal distribution. s is
    the number of honest clients that the attacker needs on its side for a majority. For b >= m/2 the formula is not
    used, and z is 1.5. With b = 1 the shift has little effect: z is zero if m is odd, and slightly negative if m is
    even (-0.43 for m = 4, -0.01 for m = 100).

    Parameters
    ----------
    z
        The number of standard deviations. Default: the z of the formula.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=3,
    ...     benign=np.array([[1.0, 5.0], [3.0, 5.0]]),
    ... )
    >>> Lie(z=2.0)(view)
    array([[0., 5.]])

    References
    ----------
    Baruch et al., "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019.
    """

    z: float | None = None

    def __post_init__(self) -> None:
        check_number("Lie", "z", self.z, 0, optional=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the shifted mean."""
        z = little_is_enough_z(view.num_clients, view.num_malicious) if self.z is None else self.z
        offset, sigma = column_moments(view.honest, view.global_model)
        return copies(view.global_model + offset - z * sigma, view.num_malicious)


@dataclass(frozen=True)
class Ipm(Attack):
    r"""Send the opposite of the honest clients' mean step (inner product manipulation).

    .. math:: x = g - \varepsilon\,(\mu - g)

    g is the global model and :math:`\mu` the mean of the honest models that the attacker knows. If epsilon is
    small, the malicious models are near the honest models. If it is large, the average of the round is reversed.

    Parameters
    ----------
    epsilon
        The length of the opposite step, as a multiple of the length of the mean honest step. Common values are 0.1,
        0.5 and 100.

    Examples
    --------
    >>> view = View(own=np.array([[1.0, 0.0], [3.0, 0.0]]), global_model=np.zeros(2), num_clients=4)
    >>> Ipm(epsilon=0.5)(view)
    array([[-1., 0.],
           [-1., 0.]])

    References
    ----------
    Xie et al., "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI 2019.
    """

    epsilon: float = 0.5

    def __post_init__(self) -> None:
        check_number("Ipm", "epsilon", self.epsilon, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the global model plus the opposite step."""
        return copies(view.global_model - self.epsilon * mean_displacement(view), view.num_malicious)
