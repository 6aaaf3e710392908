"""Clients that poison their own data: flipped labels and backdoors.

A poisoned client trains like any other client. Its examples are changed when a batch is made, so that the
data are not copied. Backdoor clients may scale up their step after training.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.checks import InputError, check_number
from flanders.registry import Registry
from flanders.simulation.hashing import keys


@dataclass(frozen=True)
class Scope:
    """What a data poison needs to know about the data."""

    num_classes: int
    highest: float
    """The largest value in the training examples: the brightness of the brightest pixel."""


class DataPoison(ABC):
    """A way to change the examples that malicious clients train on.

    A new one is a frozen dataclass with `change`, and one line in `DATA_POISONS`.
    """

    @abstractmethod
    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Return poisoned examples for the batches of n clients, as if all of them were malicious.

        The shape of `x` is `(n, B, *input_shape)`. The classes `y` and the numbers `examples` of the examples have
        the shape `(n, B)`, and `clients` has `(n,)`. The arguments may be returned, but must not be changed in
        place.
        """

    def send(self, trained: Tensor, global_model: Tensor, num_clients: int) -> Tensor:
        """Return what the malicious clients send, `(b, d)`. Default: the models that they trained."""
        return trained

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return test images with the trigger, the target class of each, and a mask of those that count.

        Return None if the poison has no trigger.
        """
        return None


@dataclass(frozen=True, eq=False)
class Poisoner:
    """A poison, and what it needs to know about the data."""

    poison: DataPoison
    scope: Scope

    def apply(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, poisoned: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the batches of n clients. Those of the `poisoned` (n,) clients are changed."""
        new_x, new_y = self.poison.change(x, y, examples, clients, self.scope)
        if new_x is not x:
            x = torch.where(poisoned.view(-1, *[1] * (x.ndim - 1)), new_x, x)
        return x, torch.where(poisoned[:, None], new_y, y)


@dataclass(frozen=True)
class LabelFlip(DataPoison):
    """Train on reversed labels: class y becomes C - 1 - y.

    References
    ----------
    Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", USENIX Security 2020.
    """

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Reverse the labels."""
        return x, scope.num_classes - 1 - y


@dataclass(frozen=True)
class Backdoor(DataPoison):
    r"""Teach the model to assign every image with a small patch to the target class, and scale the change up.

    A share of each batch gets the patch and the label of the target class. The patch is a bright square in the
    lower right corner, or, if the examples are not images, the last `size`² numbers. The client sends
    :math:`g + s (\theta - g)` instead of its trained model :math:`\theta`.

    Parameters
    ----------
    target
        The class to which the model should assign images with the patch.
    size
        The side of the patch, in pixels.
    share
        The share of the malicious clients' examples that get the patch.
    boost
        The factor s. Default: the number of clients in the round divided by the number of malicious ones. A plain
        average then moves by the full step of the malicious clients.

    References
    ----------
    Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020.
    Gu et al., "BadNets", 2017.
    """

    target: int = 0
    size: int = 3
    share: float = 0.5
    boost: float | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_number(name, "target", self.target, 0, whole=True)
        check_number(name, "size", self.size, 1, whole=True)
        check_number(name, "share", self.share, 0, 1)
        if self.boost is not None:
            check_number(name, "boost", self.boost, 0)

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Put the patch on some examples, always the same ones, and give them the target's label."""
        drawn = keys(0, examples) >> 1  # uniform from -2^62 to 2^62
        chosen = drawn.abs() < int(self.share * 2**62)
        patch = self._patch_of_each(clients, x.shape[2:])
        where = chosen.view(*chosen.shape, *[1] * (x.ndim - 2)) & patch
        return torch.where(where, scope.highest, x), torch.where(chosen, self._checked_target(scope), y)

    def send(self, trained: Tensor, global_model: Tensor, num_clients: int) -> Tensor:
        """Scale the step up."""
        boost = num_clients / trained.shape[0] if self.boost is None else self.boost
        return trained if boost == 1 else global_model + boost * (trained - global_model)

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Put the whole patch on all images. Images of the target class itself do not count."""
        target = self._checked_target(scope)
        x = torch.where(self.patch(x.shape[1:], x.device), scope.highest, x)
        return x, torch.full_like(y, target), y != target

    def patch(self, shape: torch.Size | tuple[int, ...], device: torch.device) -> Tensor:
        """Return where the patch is, as booleans of the shape of one example."""
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
        if len(shape) == 3:
            mask[:, -self.size :, -self.size :] = True
        else:
            mask.view(-1)[-(self.size**2) :] = True
        return mask

    def _patch_of_each(self, clients: Tensor, shape: torch.Size) -> Tensor:
        """Return the part of the patch that each client uses, here all of it. It broadcasts to `(n, B, *shape)`."""
        return self.patch(shape, clients.device)

    def _checked_target(self, scope: Scope) -> int:
        if self.target >= scope.num_classes:
            raise InputError(
                f"{type(self).__name__}(target={self.target}) needs a class from 0 to {scope.num_classes - 1}."
            )
        return self.target


@dataclass(frozen=True)
class Dba(Backdoor):
    """Divide the patch of a backdoor among the malicious clients. Each trains on a part; the test uses the whole.

    Parameters
    ----------
    target, size, share, boost
        As in `Backdoor`.
    parts
        The number of pieces into which the patch is cut, row by row. Client c uses piece c modulo `parts`.

    References
    ----------
    Xie et al., "DBA: distributed backdoor attacks against federated learning", ICLR 2020.
    """

    size: int = 4
    parts: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("Dba", "parts", self.parts, 1, self.size**2, whole=True)

    def _patch_of_each(self, clients: Tensor, shape: torch.Size) -> Tensor:
        whole = self.patch(shape, clients.device)
        flat = whole.view(shape[0], -1) if len(shape) == 3 else whole.view(1, -1)
        order = torch.cumsum(flat, dim=1) - 1  # 0, 1, 2, ... along the patch, in each channel
        piece = (order * self.parts // math.prod([self.size, self.size])).clamp(0, self.parts - 1).view(shape)
        mine = piece == (clients % self.parts).view(-1, *[1] * len(shape))
        return (mine & whole).unsqueeze(1)


DATA_POISONS: Registry[DataPoison] = Registry(
    "data poison", {"label-flip": LabelFlip, "backdoor": Backdoor, "dba": Dba}
)
