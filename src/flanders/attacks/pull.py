"""The attack `OwnPull` pulls each client's own step in a harmful direction. Two more attacks do this less visibly.

In the formulas, g is the global model. theta_c is what client c has honestly trained, and x_c is what it sends. The
step of a client is its model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied, like
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import direction_against, is_honest, norm
from flanders.checks import check_choice, check_number
from flanders.linalg.products import cosines_of_gram, gram, squared_norms
from flanders.state import saveable

PLACES = ("all", "last-layer", "but-last-layer")


@dataclass(frozen=True)
class OwnPull(Attack):
    r"""Pull each client's own step away from the honest mean step, without changing the length of the step.

    .. math:: x_c = g + \|u_c\| \frac{u_c - s \|u_c\| n}{\|u_c - s \|u_c\| n\|},
              \qquad u_c = \theta_c - g

    n is the unit vector along the mean of the honest steps that the attacker knows. The vector
    :math:`-s \|u_c\| n` is the pull. Each client pulls its own step, so no two clients send the same model.

    Parameters
    ----------
    strength
        The length s of the pull, as a multiple of the length of the client's own step.
    where
        Which parameters are pulled: `"all"`, `"last-layer"`, or `"but-last-layer"` (all except the last layer). The
        pulled part of the step keeps its length. If the attacker does not know the last layer, it pulls all
        parameters.

    Examples
    --------
    >>> own, benign = np.array([[3.0, 4.0]]), np.array([[0.0, 9.0]])
    >>> view = View(own=own, global_model=np.zeros(2), num_clients=2, benign=benign)
    >>> OwnPull(strength=0.8)(view)
    array([[5., 0.]])

    References
    ----------
    This package.
    """

    strength: float = 0.6
    where: str = "all"

    def __post_init__(self) -> None:
        check_number("OwnPull", "strength", self.strength, 0)
        check_choice("OwnPull", "where", self.where, PLACES)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the attacker's models after the pull."""
        return pull_away(view, self.strength, columns_to_pull(view, self.where))


@saveable
@dataclass(frozen=True, eq=False)
class Poisoned:
    """What `GrowingCamp` remembers: how many rounds it has poisoned."""

    rounds: int = 0


@dataclass(frozen=True)
class GrowingCamp(Attack):
    r"""Pull like `OwnPull`, with `joining` clients in the first round and as many more in every later round.

    .. math:: x_c = \begin{cases} \text{the model that } \texttt{OwnPull} \text{ sends} & c \le k\,t \\
              \theta_c & \text{otherwise} \end{cases}

    The malicious clients c and the poisoned rounds t are counted from 1. If many clients begin to pull in the same
    round, they stand out as a group. A group that grows slowly may look like a change of the whole federation.

    Parameters
    ----------
    strength
        The length of the pull, as a multiple of the length of the client's own step.
    joining
        The number k of clients that join in each poisoned round. In poisoned round t, the first k t malicious
        clients pull.

    Examples
    --------
    >>> own, benign = np.array([[3.0, 4.0], [3.0, 4.0]]), np.array([[0.0, 9.0]])
    >>> view = View(own=own, global_model=np.zeros(2), num_clients=3, benign=benign)
    >>> GrowingCamp(strength=0.8)(view)  # in the first round one client pulls
    array([[5., 0.],
           [3., 4.]])

    References
    ----------
    This package.
    """

    strength: float = 0.6
    joining: int = 1

    def __post_init__(self) -> None:
        check_number("GrowingCamp", "strength", self.strength, 0)
        check_number("GrowingCamp", "joining", self.joining, 1, whole=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the pulled models of the clients that have joined, and the honest models of the others."""
        xp = array_api_compat.array_namespace(view.own)
        members = self.joining * ((view.memory or Poisoned()).rounds + 1)
        joined = np.arange(view.num_malicious) < members
        rows = pull_away(view, self.strength, slice(None))
        return xp.where(like(joined, view.own, xp.bool)[:, None], rows, view.own)

    def remember(self, view: View, sent: Array) -> Poisoned:
        """Count the poisoned rounds."""
        return Poisoned((view.memory or Poisoned()).rounds + (not is_honest(view, sent)))


@dataclass(frozen=True)
class BelowTheSplit(Attack):
    r"""Pull like `OwnPull`, as strongly as possible without a visible gap between malicious and honest clients.

    .. math:: \max\{s : \operatorname{median}_{c \text{ malicious}} a_c(s) \ge Q_{0.1}(a_i(s) : i \text{ honest})\}

    The agreement :math:`a_c(s)` of client c is the mean cosine between its step and all steps of the round, if
    malicious clients pull with strength s. If the attacker knows the last layer, it computes the cosines from this
    layer, otherwise from all parameters. :math:`Q_{0.1}` is the 10% quantile. The attacker searches by bisection
    for the strongest pull at which the median agreement of its own clients is at least the 10% quantile of the
    honest clients' agreement. If the median is lower even without a pull, the attacker sends its honest models. An
    attacker that knows no models of other clients pulls with a strength of about 0.1.

    Parameters
    ----------
    most
        The strongest pull that is tried, as a multiple of the length of the client's own step.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> models = np.ones(50) + rng.normal(size=(12, 50))
    >>> view = View(own=models[:4], global_model=np.zeros(50), num_clients=12, benign=models[4:])
    >>> sent = BelowTheSplit()(view)
    >>> mean = models[4:].mean(axis=0)
    >>> bool((sent @ mean < models[:4] @ mean).all())  # all four have turned away from the honest mean
    True

    References
    ----------
    This package.
    """

    most: float = 2.0

    def __post_init__(self) -> None:
        check_number("BelowTheSplit", "most", self.most, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the models with the strongest pull that the search finds."""
        low, high = 0.0, self.most
        if not self._is_hidden(view, low):
            return copied(view.own)
        for _ in range(8):  # the pull is then known to within 1/256 of `most`
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_hidden(view, middle) else (low, middle)
        return pull_away(view, low, slice(None))

    def _is_hidden(self, view: View, strength: float) -> bool:
        if view.benign is None or view.benign.shape[0] == 0:
            return strength <= 0.1  # there is no honest client to compare with, so the attacker pulls weakly
        xp = array_api_compat.array_namespace(view.own)
        columns = slice(None) if view.last_layer is None else view.last_layer
        rows = xp.concat([pull_away(view, strength, slice(None)), view.benign])
        cosines = cosines_of_gram(gram(rows[:, columns], view.global_model[columns]))
        mean_cosines, b = cosines.mean(axis=1), view.num_malicious
        return bool(np.median(mean_cosines[:b]) >= np.quantile(mean_cosines[b:], 0.1))


def columns_to_pull(view: View, where: str) -> slice:
    """Return the columns that are pulled. If the last layer is not known, these are all columns."""
    if where == "all" or view.last_layer is None:
        return slice(None)
    return view.last_layer if where == "last-layer" else slice(0, view.last_layer.start)


def pull_away(view: View, strength: float, columns: slice) -> Array:
    """Return the attacker's models with the given columns of each step pulled away from the honest mean step.

    The pulled part of each step keeps its length.
    """
    against = direction_against(view)
    if against is None:
        return copied(view.own)
    direction = against[columns]
    direction_length = norm(direction)
    if direction_length == 0:
        return copied(view.own)
    g = view.global_model[columns]
    steps = view.own[:, columns] - g[None, :]
    lengths = np.sqrt(squared_norms(steps))
    pulled = steps + like(strength * lengths / direction_length, steps)[:, None] * direction[None, :]
    new_lengths = np.sqrt(squared_norms(pulled))
    factors = np.divide(lengths, new_lengths, out=np.ones_like(new_lengths), where=new_lengths > 0)
    rows = g[None, :] + like(factors, pulled)[:, None] * pulled
    start, stop, _ = columns.indices(view.own.shape[1])
    xp = array_api_compat.array_namespace(rows)
    return xp.concat([view.own[:, :start], rows, view.own[:, stop:]], axis=1)
