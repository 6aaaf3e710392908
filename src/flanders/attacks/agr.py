"""Shejwalkar and Houmansadr's attacks: the largest step away from the honest mean that a constraint allows."""

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
"""How many strengths are tried against the server itself, as many as ByzFL tries."""


@dataclass(frozen=True)
class AgrAttack(Attack):
    """The base of the family: an attack that sends b copies of mu + gamma p. Subclasses choose gamma.

    mu is the honest mean. `direction` names p: "std" is minus the honest standard deviation. "unit" is minus the
    unit vector along the honest mean displacement mu - g. "sign" is minus the signs of that displacement.
    """

    direction: str = "std"

    def __post_init__(self) -> None:
        check_choice(type(self).__name__, "direction", self.direction, DIRECTIONS)

    @abstractmethod
    def gamma(self, line: Line, view: View) -> float:
        """Return how far to go along `line`, which starts at the honest mean."""

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
    r"""Move away from the honest mean, but no farther from any honest model than these are from each other.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \max_i \|x - x_i\| \le \max_{i,j} \|x_i - x_j\|

    No search is needed. For each i, the left side squared minus the right side squared is a parabola in gamma that
    opens upwards. At gamma = 0 it is not positive, since the mean is no farther from x_i than some x_j is. So the
    constraint of i holds exactly up to the larger root, and the answer is the least of these roots. If all honest
    models that the attacker knows are equal, gamma is 0, and the attacker sends their mean.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation (the paper's setting). "unit" is minus the
        unit vector along the honest mean displacement mu - g. "sign" is minus the signs of that displacement.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 1)),
    ...     global_model=np.zeros(1),
    ...     num_clients=3,
    ...     benign=np.array([[1.0], [3.0]]),
    ... )
    >>> AgrMinMax()(view)  # the honest models are 2 apart, and 1 is at distance 2 from 3
    array([[1.]])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    def gamma(self, line: Line, view: View) -> float:
        """Return the least of the roots."""
        return min_max_gamma(line)


@dataclass(frozen=True)
class AgrMinSum(AgrAttack):
    r"""Move away from the honest mean, while the squared distances add up to no more than for some honest model.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \sum_i \|x - x_i\|^2 \le \max_i \sum_j \|x_i - x_j\|^2

    The left side is a parabola in gamma. At gamma = 0 it is not above the right side, since no point has a smaller
    sum than the mean. So the answer is the larger gamma at which both sides are equal.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation. "unit" is minus the unit vector along
        the honest mean displacement mu - g. "sign" is minus the signs of that displacement.

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
        """Return the larger root."""
        return line.longest_within_sum(float(line.between.sum(axis=1).max()))


@dataclass(frozen=True)
class AgrTailored(AgrAttack):
    r"""Move away from the honest mean as long as a known aggregator still selects the malicious models.

    :math:`x = \mu + \gamma p` with the largest gamma found that fools the target. Krum is fooled if it picks a
    malicious model. Multi-Krum, which selects m - b models, and Bulyan, which selects m - 2b, are fooled if
    they select all b malicious models, or only malicious ones. The search is that of the authors: gamma starts at
    `gamma_init`, rises after a success and falls after a failure. The step is halved each time until it is below
    `tau`. So gamma stays below 2 `gamma_init`, even if every gamma fools the target. If no gamma does, the gamma of
    AGR-min-max is taken. An attacker that knows only its own models simulates the round with them. The simulated
    round has the same share of malicious copies as the real one.

    The target "server" is the paper's general aim: the gamma for which the server's own rule, whichever it is, ends
    farthest from the honest mean. Its search is that of `optimal-lie`.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation. "unit" is minus the unit vector along
        the honest mean displacement mu - g. "sign" is minus the signs of that displacement.
    target
        The aggregator to fool: "krum", "multi-krum" or "bulyan"; "server" for what the server really does.
    gamma_init
        Where the search starts.
    tau
        The search ends when its step is smaller than this.

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
        """Return the largest gamma that the search finds, or else the gamma of AGR-min-max."""
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
        """Tell whether the target selects as many of the last b rows as it can."""
        chosen = selected_rows(self.target, distances, b)
        honest = distances.shape[0] - b
        return int(np.sum(chosen >= honest)) == min(b, chosen.size)


def min_max_gamma(line: Line) -> float:
    """Return the largest gamma with x(gamma) no farther from any row than the two farthest rows from each other."""
    return line.longest_within(float(line.between.max()))


def selected_rows(target: str, distances: FloatMatrix, num_malicious: int) -> IntVector:
    """Return the rows that Krum, Multi-Krum or Bulyan's first phase selects."""
    m, b = distances.shape[0], num_malicious
    if target == "bulyan":
        return bulyan_rows(distances, b, max(1, m - 2 * b))
    return multi_krum_rows(distances, b, 1 if target == "krum" else m - b)
