"""An attack that pulls each client's own update in a harmful direction, and two ways to hide the pull."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    r"""Turn each client's own update away from the honest mean direction, and keep its length.

    .. math:: x_c = g + \|u_c\| \frac{u_c - s \|u_c\| n}{\|u_c - s \|u_c\| n\|},
              \qquad u_c = \theta_c - g

    n is the unit vector along the honest mean displacement. Each row still contains what its
    client learnt. So no two rows are copies, and each has the length of the honest update.

    Parameters
    ----------
    strength
        The pull s, in lengths of the client's own update.
    where
        Which parameters are pulled: `"all"`, `"last-layer"`, or `"but-last-layer"`. That part keeps its length.

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
        """Return the bent models."""
        return bent(view, self.strength, pulled(view, self.where))


@saveable
@dataclass(frozen=True, eq=False)
class Poisoned:
    """How many rounds an attack has poisoned."""

    rounds: int = 0


@dataclass(frozen=True)
class GrowingCamp(Attack):
    r"""Start the pull of `OwnPull` with one client and let one more join in every round.

    .. math:: x_c = \begin{cases} \text{the row of } \texttt{OwnPull} & c \le k\,t \\
              \theta_c & \text{otherwise} \end{cases}

    In round t of the attack, k t clients pull. A camp that appears at once stands out. One that grows slowly may
    pass for a change of the whole federation.

    Parameters
    ----------
    strength
        The pull s, in lengths of the client's own update.
    joining
        How many clients join each round, k.

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
        """Return the bent models of those who have joined, and the others' honest ones."""
        xp = array_api_compat.array_namespace(view.own)
        members = self.joining * ((view.memory or Poisoned()).rounds + 1)
        joined = np.arange(view.num_malicious) < members
        rows = bent(view, self.strength, slice(None))
        return xp.where(like(joined, view.own, xp.bool)[:, None], rows, view.own)

    def remember(self, view: View, sent: Array) -> Any:
        """Count the poisoned rounds."""
        return Poisoned((view.memory or Poisoned()).rounds + (not is_honest(view, sent)))


@dataclass(frozen=True)
class BelowTheSplit(Attack):
    r"""Pull as `OwnPull` does, as strongly as possible without a gap between malicious and honest clients.

    .. math:: \max\{s : \operatorname{median}_{c \text{ malicious}} a_c(s) \ge Q_{0.1}(a_i(s) : i \text{ honest})\}

    The attacker computes the mean cosine a of each client with all others, in the last layer if it knows that
    layer. It finds by bisection the strongest pull at which the median of its own clients is still above the lowest
    tenth of the honest clients.

    Parameters
    ----------
    most
        The strongest pull it tries, in lengths of the client's own update.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> models = np.ones(50) + rng.normal(size=(12, 50))
    >>> view = View(own=models[:4], global_model=np.zeros(50), num_clients=12, benign=models[4:])
    >>> sent = BelowTheSplit()(view)
    >>> mean = models[4:].mean(axis=0)
    >>> bool((sent @ mean < models[:4] @ mean).all())  # all of them have turned away from the honest mean
    True

    References
    ----------
    This package.
    """

    most: float = 2.0

    def __post_init__(self) -> None:
        check_number("BelowTheSplit", "most", self.most, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the models with the strongest pull that leaves no gap."""
        low, high = 0.0, self.most
        if not self._hidden(view, low):
            return copied(view.own)
        for _ in range(8):  # the pull is then known to within 1/256 of `most`
            middle = (low + high) / 2
            low, high = (middle, high) if self._hidden(view, middle) else (low, middle)
        return bent(view, low, slice(None))

    def _hidden(self, view: View, strength: float) -> bool:
        if view.benign is None or view.benign.shape[0] == 0:
            return strength <= 0.1  # a weak pull, since it knows no honest client to compare with
        xp = array_api_compat.array_namespace(view.own)
        columns = slice(None) if view.last_layer is None else view.last_layer
        rows = xp.concat([bent(view, strength, slice(None)), view.benign])
        cosines = cosines_of_gram(gram(rows[:, columns], view.global_model[columns]))
        common, b = cosines.mean(axis=1), view.num_malicious
        return bool(np.median(common[:b]) >= np.quantile(common[b:], 0.1))


def pulled(view: View, where: str) -> slice:
    """Return the columns that are pulled; all of them where the last layer is not known."""
    if where == "all" or view.last_layer is None:
        return slice(None)
    return view.last_layer if where == "last-layer" else slice(0, view.last_layer.start)


def bent(view: View, strength: float, columns: slice) -> Array:
    """Return the attacker's models with these columns bent against the honest mean, as long as they were."""
    against = direction_against(view)
    if against is None:
        return copied(view.own)
    part = against[columns]
    length = norm(part)
    if length == 0:
        return copied(view.own)
    g = view.global_model[columns]
    steps = view.own[:, columns] - g[None, :]
    own = np.sqrt(squared_norms(steps))
    moved = steps + like(strength * own / length, steps)[:, None] * part[None, :]
    now = np.sqrt(squared_norms(moved))
    factors = np.divide(own, now, out=np.ones_like(now), where=now > 0)
    rows = g[None, :] + like(factors, moved)[:, None] * moved
    start, stop, _ = columns.indices(view.own.shape[1])
    xp = array_api_compat.array_namespace(rows)
    return xp.concat([view.own[:, :start], rows, view.own[:, stop:]], axis=1)
