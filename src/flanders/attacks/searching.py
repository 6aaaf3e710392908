"""Two attacks that search for the most harmful strength: optimal LIE and optimal IPM of the library ByzFL.

The strength is a factor: it says how far the malicious model is shifted. The harm is the distance between the
server's new model and the mean of the honest models.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, mean_displacement, norm, simulated_copies
from flanders.checks import check_number
from flanders.linalg.columns import column_medians, column_moments

FIRST_STEP, SHRINK = 10.0, 0.8
"""The search raises the strength in steps. The first step is FIRST_STEP. A step fails if the harm does not grow.
Before the first failed step, each step is twice the step before. After it, each step is SHRINK times the step
before. Both values are ByzFL's."""
CLEARLY = 1e-9
"""A strength counts as more harmful only if its harm is larger by at least this share. A smaller difference may be
a rounding error."""


@dataclass(frozen=True)
class SearchedAttack(Attack):
    """The base class of the two attacks. It sends b copies of a + t p, and searches for the most harmful strength
    t.

    b is the number of malicious clients. Subclasses choose the start a and the direction p, which are vectors.
    """

    evaluations: int = 20

    def __post_init__(self) -> None:
        check_number(type(self).__name__, "evaluations", self.evaluations, 1, whole=True)

    @abstractmethod
    def line(self, view: View) -> tuple[Array, Array]:
        """Return the start a and the direction p."""

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the most harmful model that the search finds."""
        at, along = self.line(view)
        strength = most_harmful(view, at, along, self.evaluations)
        return copies(at + strength * along, view.num_malicious)


@dataclass(frozen=True)
class OptimalLie(SearchedAttack):
    r"""Shift the honest mean like `Lie`, but by the number of standard deviations that harms the server most.

    .. math:: x = \mu - z^* \sigma, \quad z^* = \arg\max_z \|F(x_1, \dots, x_{m-b}, x(z), \dots, x(z)) - \mu\|

    :math:`\mu` and :math:`\sigma` are the mean and the standard deviation of each parameter over the honest models
    :math:`x_1` to :math:`x_{m-b}`. All b malicious clients send x. F is the model that the server makes of the
    round, with its filter and its aggregator. An attacker that cannot compute what the server would do assumes that
    F is the median of each parameter.

    The search is ByzFL's. It raises z in steps, and doubles the step as long as the harm grows. Then it tries
    smaller and smaller steps from the best z so far. If the harm has several peaks, e.g. with the pre-aggregator
    `nnm`, the search may miss the best z.

    Parameters
    ----------
    evaluations
        How many strengths are tried. Each try costs as much as one aggregation.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 1)),
    ...     global_model=np.zeros(1),
    ...     num_clients=5,
    ...     benign=np.array([[1.0], [3.0], [5.0], [7.0]]),
    ...     respond=lambda rows: np.where(rows[0] > -1, rows[0], 4.0),
    ... )
    >>> OptimalLie()(view)  # this server accepts malicious models above -1 only
    array([[-0.68...]])

    References
    ----------
    Allouah et al., "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023.
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021 (the same aim).
    """

    def line(self, view: View) -> tuple[Array, Array]:
        """Return the honest mean, and minus the honest standard deviation."""
        offset, sigma = column_moments(view.honest, view.global_model)
        return view.global_model + offset, -sigma


@dataclass(frozen=True)
class OptimalIpm(SearchedAttack):
    r"""Send the opposite of the honest mean step, with the length that harms the server most.

    .. math:: x = g - \varepsilon^* (\mu - g), \quad
              \varepsilon^* = \arg\max_\varepsilon \|F(x_1, \dots, x_{m-b}, x(\varepsilon), \dots) - \mu\|

    This is the attack `Ipm` with a searched length. g is the global model. The other letters have the same meaning
    as in `OptimalLie`, and the search is the same.

    Parameters
    ----------
    evaluations
        How many strengths are tried. Each try costs as much as one aggregation.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
    ...     respond=lambda rows: np.clip(rows.mean(axis=0), -30.0, 30.0),
    ... )
    >>> OptimalIpm()(view)  # beyond -30 this server moves no farther
    array([[-30..., 0.]])

    References
    ----------
    Allouah et al., "Fixing by mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023.
    """

    def line(self, view: View) -> tuple[Array, Array]:
        """Return the global model, and minus the honest mean step."""
        return view.global_model, -mean_displacement(view)


def most_harmful(view: View, at: Array, along: Array, evaluations: int) -> float:
    """Return the most harmful strength t that the search finds, if malicious clients send `at + t * along`.

    The search doubles its step as long as the harm grows. Then it tries smaller and smaller steps from the best
    strength so far.
    """
    mean = view.global_model + mean_displacement(view)

    def harm(strength: float) -> float:
        model = at + strength * along
        response = assumed_response if view.respond is None else server_response
        return norm(response(view, model) - mean)

    best, step, never_failed = 0.0, FIRST_STEP, True
    most_harm = harm(best)
    for _ in range(evaluations - 1):
        new_harm = harm(best + step)
        if new_harm > most_harm * (1 + CLEARLY):
            best, most_harm = best + step, new_harm
            step *= 2 if never_failed else SHRINK
        else:
            step, never_failed = step * SHRINK, False
    return best


def server_response(view: View, model: Array) -> Array:
    """Return the server's new model if all malicious clients sent `model`."""
    assert view.respond is not None
    return view.respond(copies(model, view.num_malicious))


def assumed_response(view: View, model: Array) -> Array:
    """Return the median of each parameter in a simulated round in which malicious clients send `model`."""
    xp = array_api_compat.array_namespace(model)
    return column_medians(xp.concat([view.honest, copies(model, simulated_copies(view))]))
