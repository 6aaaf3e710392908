"""Shejwalkar and Houmansadr's attacks: go as far away from the honest mean as a constraint allows.

In the formulas, the x_i are the honest models that the attacker knows, mu is their mean, and g is the global model.
A round has m clients, b of them malicious. All b send the same model x = mu + gamma p. The vector p is called the
perturbation, and gamma is a number.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, norm, simulated_copies
from flanders.attacks.searching import most_harmful
from flanders.checks import check_choice, check_number
from flanders.linalg.columns import column_moments
from flanders.linalg.line import Line
from flanders.linalg.neighbours import bulyan_rows, multi_krum_rows

DIRECTIONS = ("std", "unit", "sign")
TARGETS = ("krum", "multi-krum", "bulyan", "server")
EVALUATIONS = 20
"""How many values of gamma `AgrTailored(target="server")` tries: as many as the library ByzFL."""


@dataclass(frozen=True)
class AgrAttack(Attack):
    """The base class of the attacks in this module. It sends b copies of mu + gamma p. Subclasses choose gamma.

    `direction` says which vector p is. "std" is minus the honest standard deviation. "unit" is minus the unit
    vector along the honest mean displacement mu - g. "sign" is minus the signs of mu - g.
    """

    direction: str = "std"

    def __post_init__(self) -> None:
        check_choice(type(self).__name__, "direction", self.direction, DIRECTIONS)

    @abstractmethod
    def gamma(self, line: Line, view: View) -> float:
        """Return gamma. `line` computes the distance from mu + gamma p to each honest model, for any gamma."""

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the perturbed mean."""
        mu, p = self._mean_and_perturbation(view)
        gamma = self.gamma(Line.measure(view.honest, mu, p), view)
        return copies(mu + gamma * p, view.num_malicious)

    def _mean_and_perturbation(self, view: View) -> tuple[Array, Array]:
        offset, sigma = column_moments(view.honest, view.global_model)
        return view.global_model + offset, self._perturbation(offset, sigma)

    def _perturbation(self, displacement: Array, sigma: Array) -> Array:
        xp = array_api_compat.array_namespace(displacement)
        if self.direction == "std":
            return -sigma
        if self.direction == "sign":
            return -xp.sign(displacement)
        length = norm(displacement)
        return -displacement / (length if length > 0 else 1.0)


@dataclass(frozen=True)
class AgrMinMax(AgrAttack):
    r"""Move away from the honest mean, up to the largest distance between two honest models.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \max_i \|x - x_i\| \le \max_{i,j} \|x_i - x_j\|

    The largest distance from x to an honest model is then at most the largest distance between two honest models.
    No search is needed: for each honest model, a quadratic equation gives the largest gamma at which x is near
    enough to it. The smallest of these values is taken. If all honest models that the attacker knows are equal,
    gamma is 0, and the attacker sends their mean.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation (the paper's setting). "unit" is minus the
        unit vector along the honest mean displacement mu - g. "sign" is minus the signs of mu - g.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 1)),
    ...     global_model=np.zeros(1),
    ...     num_clients=3,
    ...     benign=np.array([[1.0], [3.0]]),
    ... )
    >>> AgrMinMax()(view)  # the honest models 1 and 3 are 2 apart, and so are x = 1 and 3
    array([[1.]])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    def gamma(self, line: Line, view: View) -> float:
        """Return the largest gamma that the constraint allows."""
        return min_max_gamma(line)


@dataclass(frozen=True)
class AgrMinSum(AgrAttack):
    r"""Move away from the honest mean, up to a limit for the sum of the squared distances to the honest models.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \sum_i \|x - x_i\|^2 \le \max_i \sum_j \|x_i - x_j\|^2

    The left side is the sum of the squared distances from x to all honest models. The same sum can be computed from
    each honest model. The right side is the largest of these sums. No search is needed: a quadratic equation gives
    gamma.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation. "unit" is minus the unit vector along
        the honest mean displacement mu - g. "sign" is minus the signs of mu - g.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> AgrMinSum()(view).round(2)
    array([[1., 2.]])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    def gamma(self, line: Line, view: View) -> float:
        """Return the largest gamma that the constraint allows."""
        return line.longest_within_sum(float(line.between.sum(axis=1).max()))


@dataclass(frozen=True)
class AgrTailored(AgrAttack):
    r"""Move away from the honest mean, but only so far that a known aggregator still selects the malicious models.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ found that fools the target}

    The target is an aggregator. Krum is fooled if it selects a malicious model. Multi-Krum selects m - b models,
    and Bulyan selects m - 2b. These two are fooled if they select all b malicious models, or only malicious ones.

    The search is that of the authors. The first gamma is `gamma_init`. If a gamma fools the target, a larger one is
    tried next, otherwise a smaller one. The change is halved each time until it is at most `tau`. So every gamma
    that is tried is below 2 `gamma_init`. If none of them fools the target, the gamma of `AgrMinMax` is used.

    An attacker that knows only its own models simulates the round. Its own models stand for the honest models, and
    copies of x for the malicious ones. The share of copies is about the share of malicious clients in the real
    round, but at most a half.

    With the target "server", the attack searches for the gamma that takes the server's new model farthest from the
    honest mean. This is the paper's general aim. The search is that of the attack `OptimalLie`.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation. "unit" is minus the unit vector along
        the honest mean displacement mu - g. "sign" is minus the signs of mu - g.
    target
        The aggregator to fool: "krum", "multi-krum" or "bulyan". "server" is the server's own filter and
        aggregator.
    gamma_init
        The first gamma of the search. Not used with the target "server".
    tau
        The search ends when gamma changes by at most this. Not used with the target "server".

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> AgrTailored(target="krum")(view).round(2)
    array([[1., 2.]])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    target: str = "multi-krum"
    gamma_init: float = 10.0
    tau: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("AgrTailored", "target", self.target, TARGETS)
        check_number("AgrTailored", "gamma_init", self.gamma_init, 0)
        check_number("AgrTailored", "tau", self.tau, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the perturbed mean."""
        if self.target != "server":
            return super().craft(view, rng)
        mu, p = self._mean_and_perturbation(view)
        return copies(mu + most_harmful(view, mu, p, EVALUATIONS) * p, view.num_malicious)

    def gamma(self, line: Line, view: View) -> float:
        """Return the largest gamma found that fools the target. If none is found, return that of `AgrMinMax`."""
        b = simulated_copies(view)
        best, gamma, step = 0.0, self.gamma_init, self.gamma_init
        while step > self.tau:
            step /= 2
            if self._is_fooled(line.with_copies(gamma, b), b):
                best, gamma = gamma, gamma + step
            else:
                gamma -= step
        return best if best > 0 else min_max_gamma(line)

    def _is_fooled(self, distances: FloatMatrix, b: int) -> bool:
        """Whether the target selects as many malicious rows as it can. The last b rows are malicious."""
        chosen = selected_rows(self.target, distances, b)
        num_honest = distances.shape[0] - b
        return int(np.sum(chosen >= num_honest)) == min(b, chosen.size)


def min_max_gamma(line: Line) -> float:
    """Return the largest gamma that `AgrMinMax` allows."""
    return line.longest_within(float(line.between.max()))


def selected_rows(target: str, distances: FloatMatrix, num_malicious: int) -> IntVector:
    """Return the rows that Krum, Multi-Krum, or the first phase of Bulyan selects."""
    m, b = distances.shape[0], num_malicious
    if target == "bulyan":
        return bulyan_rows(distances, b, max(1, m - 2 * b))
    return multi_krum_rows(distances, b, 1 if target == "krum" else m - b)
