"""Shejwalkar and Houmansadr's attacks: the largest step off the honest mean that a constraint allows."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, IntVector
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, norm, simulated_copies
from flanders.checks import check_choice, check_number
from flanders.linalg.columns import column_moments
from flanders.linalg.line import Line
from flanders.linalg.neighbours import bulyan_rows, multi_krum_rows

DIRECTIONS = ("std", "unit", "sign")
TARGETS = ("krum", "multi-krum", "bulyan")


@dataclass(frozen=True)
class AgrAttack(Attack):
    """What the family has in common: b copies of mu + gamma p, with as large a gamma as the subclass allows.

    mu is the honest mean. `direction` names p: "std" is minus the honest standard deviation,
    "unit" minus the unit vector along the honest mean displacement mu - g, "sign" minus its signs.
    """

    direction: str = "std"

    def __post_init__(self) -> None:
        check_choice(type(self).__name__, "direction", self.direction, DIRECTIONS)

    @abstractmethod
    def gamma(self, line: Line, view: View) -> float:
        """Return how far to go along a line from the honest mean, given its distances to the honest models."""

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the perturbed mean."""
        offset, sigma = column_moments(view.honest, view.global_model)
        mu, p = view.global_model + offset, self._perturbation(offset, sigma)
        gamma = self.gamma(Line.cast(view.honest, mu, p), view)
        return copies(mu + gamma * p, view.num_malicious)

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
    r"""Move off the honest mean while no honest model is farther away than two of them are apart.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \max_i \|x - x_i\| \le \max_{i,j} \|x_i - x_j\|

    No search is needed. For each i the squared constraint is a parabola in gamma that opens upwards. It is not
    positive at gamma = 0, since the mean is no farther from x_i than some x_j is. So it allows exactly the gammas
    up to its larger root, and the answer is the least of these roots. If all honest models the attacker knows are
    equal there is no room, and it sends their mean.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation (the paper's setting),
        "unit" minus the unit vector along the honest mean displacement mu - g, "sign" minus that
        displacement's signs.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 1)),
    ...     global_model=np.zeros(1),
    ...     num_clients=3,
    ...     benign=np.array([[1.0], [3.0]]),
    ... )
    >>> AgrMinMax()(view)  # 3 may be at most 2 away
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
    r"""Move off the honest mean while the sum of squared distances stays below an honest model's largest.

    .. math:: x = \mu + \gamma p, \quad \text{the largest } \gamma \text{ with }
              \sum_i \|x - x_i\|^2 \le \max_i \sum_j \|x_i - x_j\|^2

    The left side is one parabola in gamma. At gamma = 0 it is not above the right side, since the mean has
    the least sum of all points. So the answer is its larger root.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation, "unit" minus the unit vector
        along the honest mean displacement mu - g, "sign" minus that displacement's signs.

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    def gamma(self, line: Line, view: View) -> float:
        """Return the root."""
        return line.longest_within_sum(float(line.between.sum(axis=1).max()))


@dataclass(frozen=True)
class AgrTailored(AgrAttack):
    r"""Move off the honest mean while a known aggregator still selects the malicious models.

    :math:`x = \mu + \gamma p` with the largest gamma found for which the target's choice holds as
    many malicious models as it can: Krum's pick is malicious; Multi-Krum's m - b, or Bulyan's
    m - 2b, include all b (or are all malicious, where they are fewer). The search is the authors':
    from `gamma_init`, up after a success, down after a failure, by a step that halves each time until
    it is below `tau`. So gamma stays below 2 `gamma_init`, even if the target falls for every gamma.
    If no gamma succeeds, AGR-min-max's is taken. An attacker that knows only its own models simulates the
    round with these, with malicious copies in the round's proportion.

    Parameters
    ----------
    direction
        The perturbation p: "std" is minus the honest standard deviation, "unit" minus the unit vector
        along the honest mean displacement mu - g, "sign" minus that displacement's signs.
    target
        The aggregator to fool: "krum", "multi-krum" or "bulyan".
    gamma_init
        Where the search starts.
    tau
        The step at which it ends.

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

    def gamma(self, line: Line, view: View) -> float:
        """Return the largest gamma the search finds, or AGR-min-max's."""
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
        chosen = selected_rows(self.target, distances, b)
        honest = distances.shape[0] - b
        return int(np.sum(chosen >= honest)) == min(b, chosen.size)


def min_max_gamma(line: Line) -> float:
    """Return the largest gamma at which no row is farther from x(gamma) than two rows are apart."""
    return line.longest_within(float(line.between.max()))


def selected_rows(target: str, distances: FloatMatrix, num_malicious: int) -> IntVector:
    """Return the rows that Krum, Multi-Krum or Bulyan's first phase selects."""
    m, b = distances.shape[0], num_malicious
    if target == "bulyan":
        return bulyan_rows(distances, b, max(1, m - 2 * b))
    return multi_krum_rows(distances, b, 1 if target == "krum" else m - b)
