"""Two attacks by an attacker that knows the filter.

The attacker of `BlindSpot` knows which parameters the filter looks at. The attacker of `Budget` knows how far a
client may deviate from its own past.

In the formulas, g is the global model and mu the mean of the honest models. theta_c is what client c has honestly
trained, and x_c is what it sends. A step is a model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied, like
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import direction_against, mean_displacement
from flanders.checks import check_number
from flanders.client_ids import ClientId
from flanders.linalg.products import squared_norms
from flanders.state import saveable


@dataclass(frozen=True)
class BlindSpot(Attack):
    r"""Stay honest on the parameters that the filter looks at, and poison all other parameters.

    .. math:: x_c = \theta_c \text{ on the server's columns}, \quad
              x_c = g - s\,(\mu - g) \text{ elsewhere}

    The server's columns are the parameters that its filter looks at (`View.server_columns`). If the filter looks at
    all parameters, or the attacker does not know the server's columns, it sends the honest models.

    Parameters
    ----------
    scale
        The length s of the poisoned step, as a multiple of the length of the mean honest step.

    Examples
    --------
    >>> view = View(
    ...     own=np.array([[1.0, 2.0, 3.0]]),
    ...     global_model=np.zeros(3),
    ...     num_clients=4,
    ...     server_columns=np.array([0]),
    ... )
    >>> BlindSpot()(view)
    array([[ 1., -2., -3.]])

    References
    ----------
    This package.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("BlindSpot", "scale", self.scale, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the honest models, poisoned in all parameters that the filter does not look at."""
        if view.server_columns is None:
            return copied(view.own)
        xp = array_api_compat.array_namespace(view.own)
        watched = np.zeros(view.own.shape[1], dtype=bool)
        watched[view.server_columns] = True
        poisoned = view.global_model - self.scale * mean_displacement(view)
        return xp.where(like(watched, view.own, xp.bool)[None, :], view.own, poisoned[None, :])


@saveable
@dataclass(frozen=True, eq=False)
class SeenSteps:
    """What `Budget` remembers: the direction of its pull, and the last step of each client."""

    direction: Array | None = None
    displacements: dict[ClientId, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget(Attack):
    r"""Repeat each client's last step, and add a small pull that has the same direction in every round.

    .. math:: x_i = g + \rho D_i + c\,\|D_i\|\, v

    Here i is a client, and c and rho are numbers. :math:`D_i` is the last step of client i that the attacker has
    seen: the model that the client sent, minus the global model of that round. If the attacker has seen no step of
    this client yet, it uses the client's honest step of the current round. The last term is the pull. Its direction
    is the unit vector v, which is opposite to the mean honest step of the first round that the attacker saw, and
    stays the same in all rounds. With rho = 1, a filter that compares clients with their own past sees a deviation
    of c times the length of the last step.

    Parameters
    ----------
    rho
        The factor by which the last step is multiplied.
    c
        The length of the pull, as a multiple of the length of the last step.

    Examples
    --------
    >>> view = View(
    ...     own=np.array([[3.0, 4.0]]), global_model=np.zeros(2), num_clients=2, benign=np.array([[0.0, 9.0]])
    ... )
    >>> Budget(rho=1.0, c=0.4)(view)
    array([[3., 2.]])

    References
    ----------
    This package.
    """

    rho: float = 0.9
    c: float = 0.3

    def __post_init__(self) -> None:
        check_number("Budget", "rho", self.rho, 0)
        check_number("Budget", "c", self.c, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the models with the repeated step and the pull."""
        xp = array_api_compat.array_namespace(view.own)
        g, past = view.global_model, (view.memory or SeenSteps())
        steps = xp.stack([past.displacements.get(id_, view.own[i, :] - g) for i, id_ in enumerate(view.clients)])
        v = direction_against(view) if past.direction is None else past.direction
        moved = g[None, :] + self.rho * steps
        if v is None:
            return moved
        lengths = like(np.sqrt(squared_norms(steps)), steps)
        return moved + self.c * lengths[:, None] * v[None, :]

    def remember(self, view: View, sent: Array) -> SeenSteps:
        """Remember the last step of every client that the attacker saw, and the direction once it is known."""
        past = view.memory or SeenSteps()
        g, steps = view.global_model, dict(past.displacements)
        steps |= {client: sent[i, :] - g for i, client in enumerate(view.clients)}
        if view.benign is not None:
            steps |= {client: view.benign[i, :] - g for i, client in enumerate(view.benign_clients)}
        return SeenSteps(direction_against(view) if past.direction is None else past.direction, steps)
