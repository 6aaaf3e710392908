"""Shejwalkar and Houmansadr's attacks: the largest step away from the honest mean that a constraint allows.

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
"""How many values of gamma `AgrTailored(target="server")` tries. The library ByzFL tries as many."""


@dataclass(frozen=True)
class AgrAttack(Attack):
    """The base class of these attacks: it sends b copies of mu + gamma p. Subclasses choose gamma.

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
    r"""Move away from the honest mean, but no farther from any honest model than the two farthest ones are apart.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \max_i \|x - x_i\| \le \max_{i,j} \|x_i - x_j\|

    No search is needed. For each honest model x_i, the squared distance from x to x_i, minus the squared right
    side, is a parabola in gamma that opens upwards. At gamma = 0 it is not positive, since some x_j is at least as
    far from x_i as the mean is. So x is near enough to x_i up to the larger root of this parabola. There is one
    such root for each x_i, and gamma is the least of them. If all honest models that the attacker knows are equal,
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
    r"""Move away from the honest mean, with a limit to the sum of the squared distances to all honest models.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \sum_i \|x - x_i\|^2 \le \max_i \sum_j \|x_i - x_j\|^2

    The left side is the sum of the squared distances from x to all honest models. The right side is the largest
    such sum of an honest model. The left side is a parabola in gamma. At gamma = 0 it is not above the right side,
    since no point has a smaller sum than the mean. Two values of gamma make both sides equal, and the larger one is
    taken.

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

    Krum is fooled if it selects a malicious model. Multi-Krum selects m - b models, and Bulyan m - 2b. They are
    fooled if they select all b malicious models, or only malicious ones.

    The search follows the authors. Gamma starts at `gamma_init`. It rises if it fools the target, and falls if it
    does not. The change of gamma is halved each time until it is at most `tau`. All changes together are less than
    `gamma_init`, so gamma stays below 2 `gamma_init`, even if every gamma fools the target. If no tried gamma fools
    the target, the gamma of `AgrMinMax` is used.

    An attacker that knows only its own models simulates the round: its own models take the place of the honest
    models, and copies of x are added. The share of copies is about the share of malicious clients in the real
    round, but at most a half.

    With the target "server", the attack searches for the gamma for which the server's new model is farthest from
    the honest mean. This is the paper's general aim. The attack `OptimalLie` uses the same search.

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
        The search ends when the change of gamma is at most this. Not used with the target "server".

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
