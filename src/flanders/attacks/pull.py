"""An attack that pulls each client's own update in a harmful direction, and two ways to hide the pull."""

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
    r"""Turn each client's own update away from the honest mean direction, and keep its length.

    .. math:: x_c = g + \|u_c\| \frac{u_c - s \|u_c\| n}{\|u_c - s \|u_c\| n\|},
              \qquad u_c = \theta_c - g

    n is the unit vector along the honest mean displacement. Each row still contains what its
    client learnt. So no two rows are copies, and each has the length of the honest update.

    Parameters
    ----------
    strength
        The length s of the pull, as a multiple of the client's own update.
    where
        Which parameters are pulled: `"all"`, `"last-layer"`, or `"but-last-layer"` (all but the last layer). The
        pulled part of the update keeps its length. If the attacker does not know the last layer, it pulls all
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
    """How many rounds an attack has poisoned."""

    rounds: int = 0


@dataclass(frozen=True)
class GrowingCamp(Attack):
    r"""Start the pull of `OwnPull` with `joining` clients, and let as many more join in every round.

    .. math:: x_c = \begin{cases} \text{the row of } \texttt{OwnPull} & c \le k\,t \\
              \theta_c & \text{otherwise} \end{cases}

    A camp that appears at once stands out; one that grows slowly may pass for a change of the whole federation.

    Parameters
    ----------
    strength
        The length s of the pull, as a multiple of the client's own update.
    joining
        How many clients join each round, k. In round t of the attack, k t clients pull.

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
    r"""Pull like `OwnPull`, as strongly as possible without a gap between malicious and honest clients.

    .. math:: \max\{s : \operatorname{median}_{c \text{ malicious}} a_c(s) \ge Q_{0.1}(a_i(s) : i \text{ honest})\}

    The attacker computes the mean cosine a of each client with all others, in the last layer if it knows that
    layer. It finds by bisection the strongest pull at which the median of its own clients is still above the lowest
    tenth of the honest clients.

    Parameters
    ----------
    most
        The strongest pull that it tries, as a multiple of the client's own update.

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
        if not self._is_hidden(view, low):
            return copied(view.own)
        for _ in range(8):  # the pull is then known to within 1/256 of `most`
            middle = (low + high) / 2
            low, high = (middle, high) if self._is_hidden(view, middle) else (low, middle)
        return pull_away(view, low, slice(None))

    def _is_hidden(self, view: View, strength: float) -> bool:
        if view.benign is None or view.benign.shape[0] == 0:
            return strength <= 0.1  # the attacker knows no honest client to compare with, so it pulls weakly
        xp = array_api_compat.array_namespace(view.own)
        columns = slice(None) if view.last_layer is None else view.last_layer
        rows = xp.concat([pull_away(view, strength, slice(None)), view.benign])
        cosines = cosines_of_gram(gram(rows[:, columns], view.global_model[columns]))
        common, b = cosines.mean(axis=1), view.num_malicious
        return bool(np.median(common[:b]) >= np.quantile(common[b:], 0.1))


def columns_to_pull(view: View, where: str) -> slice:
    """Return the columns that are pulled. These are all columns if the last layer is not known."""
    if where == "all" or view.last_layer is None:
        return slice(None)
    return view.last_layer if where == "last-layer" else slice(0, view.last_layer.start)


def pull_away(view: View, strength: float, columns: slice) -> Array:
    """Return the attacker's models with these columns turned away from the honest mean. Their length stays."""
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
