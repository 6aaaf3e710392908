"""The layer-wise backdoor attack, which poisons only the tensors of the model that carry the backdoor.

A tensor is the weights or the biases of one layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied
from flanders.attacks.attack import Attack, Rehearsal, View
from flanders.attacks.crafting import copies
from flanders.checks import check_number
from flanders.linalg.products import mean


@dataclass(frozen=True)
class LayerwisePoison(Attack):
    r"""Send clean models that are poisoned only in the tensors that carry the backdoor (LP attack).

    .. math:: x_{cl} = \begin{cases} \lambda \theta_{cl} + \max(0, 1 - \lambda)\, \bar u_l
              & l \text{ is critical} \\ \bar u_l & \text{otherwise} \end{cases}

    :math:`x_{cl}` is tensor l of the model that client c sends. :math:`\theta_c` is the model that client c has
    trained on poisoned data. The *poisoned model* is the mean of the :math:`\theta_c` of all malicious clients.
    These clients also train on clean data. The mean of the resulting models is the *clean model* :math:`\bar u`.

    The critical tensors carry the backdoor. The attacker finds them with its own examples. The success of a model
    is the share of examples on which the backdoor works. First the attacker puts one clean tensor at a time into
    the poisoned model. The farther the success falls, the more important the tensor is. Then the attacker puts
    poisoned tensors into the clean model, the most important ones first. It stops once the success is at least
    `enough` times that of the poisoned model. The tensors that it has put in are critical.

    The attack is meant for clients that train on poisoned data (`data_poison`). The data poison needs a target
    class. If it has the parameter `boost`, set it to 1. Without poisoned data there is no backdoor to test, and the
    trained models are sent. The attack runs only in the simulator, which trains each malicious client twice: on
    clean data and on poisoned data.

    Parameters
    ----------
    enough
        The search stops at this share of the poisoned model's success. The authors' code has the same default.
    scale
        The factor :math:`\lambda` of the poisoned tensors.

    Examples
    --------
    >>> from flanders.attacks.attack import Rehearsal
    >>> layers = {"body": 2, "head": 1}
    >>> rehearsal = Rehearsal(clean=np.zeros((1, 3)), success=lambda model: float(model[2]), layers=layers)
    >>> view = View(np.ones((1, 3)), np.zeros(3), num_clients=4, rehearsal=rehearsal)
    >>> LayerwisePoison()(view)  # only the head carries the backdoor
    array([[0., 0., 1.]])

    References
    ----------
    Zhuang et al., "Backdoor federated learning by poisoning backdoor-critical layers", ICLR 2024.
    """

    enough: float = 0.8
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("LayerwisePoison", "enough", self.enough, 0, 1)
        check_number("LayerwisePoison", "scale", self.scale, 0)

    @property
    def needs_rehearsal(self) -> bool:
        """True: the attack needs clean models and a test of its backdoor."""
        return True

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return, for each client, the clean model with the critical tensors of the client's poisoned model."""
        rehearsal = view.rehearsal
        if rehearsal is None:
            return copied(view.own)
        clean, poisoned = mean(rehearsal.clean), mean(view.own)
        critical = critical_tensors(poisoned, clean, rehearsal, self.enough)
        mixed = self.scale * view.own + max(0.0, 1 - self.scale) * clean[None, :]
        xp = array_api_compat.array_namespace(view.own)
        rows = copies(clean, view.num_malicious)
        return spliced(rows, xp.astype(mixed, rows.dtype, copy=False), critical)


def critical_tensors(poisoned: Array, clean: Array, rehearsal: Rehearsal, enough: float) -> list[slice]:
    """Return the columns of the critical tensors. `LayerwisePoison` explains how they are found."""
    ends = np.cumsum([0, *rehearsal.layers.values()]).tolist()
    tensors = [slice(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]
    wanted = enough * rehearsal.success(poisoned)
    success_without = [rehearsal.success(spliced(poisoned, clean, [tensor])) for tensor in tensors]
    chosen: list[slice] = []
    reached = 0.0
    for index in np.argsort(success_without, kind="stable"):  # the most important tensor comes first
        if reached >= wanted:
            break
        chosen.append(tensors[index])
        reached = rehearsal.success(spliced(clean, poisoned, chosen))
    return chosen


def spliced(base: Array, other: Array, columns: Sequence[slice]) -> Array:
    """Return a copy of `base` (a model, or models as rows), with the given columns taken from `other`."""
    xp = array_api_compat.array_namespace(base, other)
    inside = np.zeros(base.shape[-1], dtype=bool)
    for part in columns:
        inside[part] = True
    return xp.where(xp.asarray(inside, device=array_api_compat.device(base)), other, base)
