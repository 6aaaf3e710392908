"""The layer-wise backdoor attack: only the tensors that carry the backdoor are poisoned."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied
from flanders.attacks.attack import Attack, Rehearsal, View
from flanders.checks import check_number
from flanders.linalg.products import mean


@dataclass(frozen=True)
class LayerwisePoison(Attack):
    r"""Send clean models in which only the tensors that carry the backdoor are poisoned (LP attack).

    .. math:: x_{cl} = \begin{cases} \lambda \theta_{cl} + \max(0, 1 - \lambda)\, \bar u_l
              & l \text{ is critical} \\ \bar u_l & \text{otherwise} \end{cases}

    :math:`\theta_c` is what client c has trained on poisoned data, and :math:`\bar u` the mean of what the
    malicious clients have trained on clean data. The attacker tests models on its own examples. First it puts each
    clean tensor into the poisoned model, and notes how far the success of the backdoor falls. Then it puts the
    poisoned tensors into the clean model, the most important ones first, until the success is `enough` of that of
    the poisoned model. These tensors are critical. Both models are means over the malicious clients.

    It is meant for clients with a `data_poison` that has a target, with `boost = 1`. Without one there is nothing
    to test, and the trained models are sent. It needs the simulator, which trains malicious clients twice.

    Parameters
    ----------
    enough
        The share of the poisoned model's success that is enough. The default is that of the authors' code.
    scale
        The factor :math:`\lambda`.

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
        """It compares poisoned with clean models."""
        return True

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the mean clean model for each client, with its own critical tensors."""
        found = view.rehearsal
        if found is None:
            return copied(view.own)
        clean, poisoned = mean(found.clean), mean(view.own)
        critical = critical_tensors(poisoned, clean, found, self.enough)
        mixed = self.scale * view.own + max(0.0, 1 - self.scale) * clean[None, :]
        xp = array_api_compat.array_namespace(view.own)
        rows = xp.tile(clean[None, :], (view.num_malicious, 1))
        return spliced(rows, xp.astype(mixed, rows.dtype, copy=False), critical)


def critical_tensors(poisoned: Array, clean: Array, rehearsal: Rehearsal, enough: float) -> list[slice]:
    """Return the columns of the tensors that carry the backdoor."""
    ends = np.cumsum([0, *rehearsal.layers.values()]).tolist()
    tensors = [slice(start, stop) for start, stop in itertools.pairwise(ends) if stop > start]
    wanted = enough * rehearsal.success(poisoned)
    left = [rehearsal.success(spliced(poisoned, clean, [tensor])) for tensor in tensors]
    chosen: list[slice] = []
    reached = 0.0
    for place in np.argsort(left, kind="stable"):
        if reached >= wanted:
            break
        chosen.append(tensors[place])
        reached = rehearsal.success(spliced(clean, poisoned, chosen))
    return chosen


def spliced(base: Array, other: Array, columns: Sequence[slice]) -> Array:
    """Return a copy of rows, or of one model, with some of its columns taken from another."""
    xp = array_api_compat.array_namespace(base, other)
    inside = np.zeros(base.shape[-1], dtype=bool)
    for part in columns:
        inside[part] = True
    return xp.where(xp.asarray(inside, device=array_api_compat.device(base)), other, base)
