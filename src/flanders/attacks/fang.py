"""Two attacks of Fang et al.: one against Krum, the other against the trimmed mean and the median.

In the formulas, g is the global model, the x_i are the honest models that the attacker knows, and mu is their mean.
b of the m clients of a round are malicious, and x is what they send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, like
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, mean_displacement, simulated_copies
from flanders.checks import check_number
from flanders.linalg.line import Line
from flanders.linalg.neighbours import krum_scores, multi_krum_rows


@dataclass(frozen=True)
class Opt(Attack):
    r"""Move each parameter against the honest mean step, but only so far that Krum still selects a malicious model.

    .. math:: x = g - \lambda\, s, \quad s = \operatorname{sign}(\mu - g)

    Lambda is the amount by which each parameter is moved. It starts at the authors' upper bound:

    .. math:: \lambda_0 = \sqrt{\frac{\min_i \sum_j \|x_i - x_j\|^2}{\max(1, m - 2b - 1)\,\|s\|^2}}
              + \frac{\max_i \|x_i - g\|}{\|s\|}

    The sum is over the m - b - 2 honest models :math:`x_j` that are nearest to :math:`x_i`. Lambda is halved until
    Krum selects a malicious model, or until lambda <= tau. If the honest mean of a parameter equals the global
    model, s is 0 there, and the global model's value is sent.

    An attacker that knows only its own models simulates the round. Its own models stand for the honest models, and
    copies of x for the malicious ones. The share of copies is about the share of malicious clients in the real
    round, but at most a half.

    Parameters
    ----------
    tau
        The halving stops once lambda is at most this. The authors use 1e-5.

    Examples
    --------
    >>> honest = 1 + 0.5 * np.random.default_rng(0).normal(size=(4, 2))
    >>> view = View(own=np.ones((3, 2)), global_model=np.zeros(2), num_clients=7, benign=honest)
    >>> Opt()(view).round(2)
    array([[-1.92, -1.92],
           [-1.92, -1.92],
           [-1.92, -1.92]])

    References
    ----------
    Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning",
    USENIX Security 2020.
    """

    tau: float = 1e-5

    def __post_init__(self) -> None:
        check_number("Opt", "tau", self.tau, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the model that Krum is meant to select."""
        xp = array_api_compat.array_namespace(view.own)
        s = xp.sign(mean_displacement(view))
        line = Line.measure(view.honest, view.global_model, -s)
        strength = self._strength(line, simulated_copies(view)) if line.speed > 0 else 0.0
        return copies(view.global_model - strength * s, view.num_malicious)

    def _strength(self, line: Line, b: int) -> float:
        n = line.constant.size
        smallest_sum = float(krum_scores(line.between, 0).min()) if n > 1 else 0.0
        lambda_ = math.sqrt(smallest_sum / (max(1, n - b - 1) * line.speed))
        lambda_ += math.sqrt(float(line.constant.max()) / line.speed)
        while lambda_ > self.tau and multi_krum_rows(line.with_copies(lambda_, b), b, 1)[0] < n:
            lambda_ /= 2
        return lambda_


@dataclass(frozen=True)
class OptTrimmedMean(Attack):
    r"""Put every parameter just outside the range of the honest values, against the honest mean step.

    Let min and max be the smallest and the largest honest value of parameter j. If the honest mean of the parameter
    is above the global model, the malicious values are drawn just below min. If it is below the global model, they
    are drawn just above max. They are uniformly distributed (U) on one of these intervals, where z_j is parameter j
    of a malicious model:

    .. math:: z_j \sim U[\min/k, \min] \text{ or } U[k \min, \min], \qquad
              z_j \sim U[\max, k \max] \text{ or } U[\max, \max/k]

    The two intervals on the left are below min: the first one is used if min is positive, the second one if it is
    not. The two intervals on the right are above max, with the same rule for max. Each malicious client draws its
    own values. If the honest mean of a parameter equals the global model, the global model's value is sent.

    Parameters
    ----------
    factor
        The factor k. The authors use 2.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> OptTrimmedMean()(view, np.random.default_rng(0)).round(2)
    array([[0.68, 1.73]])

    References
    ----------
    Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning",
    USENIX Security 2020.
    """

    factor: float = 2.0

    def __post_init__(self) -> None:
        check_number("OptTrimmedMean", "factor", self.factor, 1)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b rows drawn outside the honest range."""
        xp = array_api_compat.array_namespace(view.own)
        k, mean_step = self.factor, mean_displacement(view)
        low, high = xp.min(view.honest, axis=0), xp.max(view.honest, axis=0)
        near = xp.where(mean_step > 0, low, xp.where(mean_step < 0, high, view.global_model))
        below = xp.where(low > 0, low / k, low * k)
        above = xp.where(high > 0, high * k, high / k)
        far = xp.where(mean_step > 0, below, xp.where(mean_step < 0, above, view.global_model))
        draws = rng.random(view.own.shape, dtype=np.float32 if view.own.dtype == xp.float32 else np.float64)
        return near[None, :] + like(draws, view.own) * (far - near)[None, :]
