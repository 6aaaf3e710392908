"""Backdoors with a trigger, which is a patch or a pattern on an image.

Malicious clients teach the model to assign images with the trigger to the target class. A client's step is its
trained model minus the global model. Malicious clients may also scale up their steps, so that the steps change the
average more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.checks import check_number
from flanders.simulation.data_poison import DataPoison, Scope, check_class
from flanders.simulation.hashing import LARGEST, in_share, uniform


@dataclass(frozen=True)
class Backdoor(DataPoison):
    r"""Teach the model to assign images with a small patch to the target class, and scale up what clients send.

    A share of the malicious clients' examples gets the patch and the label of the target class. The patch is a
    bright square in the lower right corner. In examples that are not images, the patch is the last `size`² numbers.
    A malicious client sends :math:`g + s (\theta - g)` instead of its trained model :math:`\theta`. Here g is the
    global model, and s is `boost`.

    Parameters
    ----------
    target
        The class to which the model should assign images with the patch.
    size
        The side of the patch, in pixels.
    share
        The share of the malicious clients' examples that get the patch.
    boost
        The factor s by which a step is scaled up. Default: the number of clients in the round divided by the number
        of malicious clients. The malicious clients then move the plain average by the mean of their steps.

    Examples
    --------
    >>> Backdoor(size=2).patch((1, 4, 4), torch.device("cpu"))[0].int()
    tensor([[0, 0, 0, 0],
            [0, 0, 0, 0],
            [0, 0, 1, 1],
            [0, 0, 1, 1]], dtype=torch.int32)
    >>> Backdoor(boost=3.0).send(torch.tensor([[1.0, 2.0]]), torch.tensor([1.0, 1.0]), num_clients=6)
    tensor([[1., 4.]])

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
        check_number(name, "boost", self.boost, 0, optional=True)

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Put the trigger on a share of the examples, and give them the label of the target class.

        The same examples are chosen in every round.
        """
        chosen = in_share(self.share, examples)
        where = chosen.view(*chosen.shape, *[1] * (x.ndim - 2))
        marked = self._marked(x, clients, scope)
        return torch.where(where, marked, x), torch.where(chosen, self._checked_target(scope), y)

    def send(self, trained: Tensor, global_model: Tensor, num_clients: int) -> Tensor:
        """Scale up the step of each client by `boost`."""
        boost = num_clients / trained.shape[0] if self.boost is None else self.boost
        return trained if boost == 1 else global_model + boost * (trained - global_model)

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Put the whole patch on all images. Images of the target class itself do not count."""
        target = self._checked_target(scope)
        x = torch.where(self.patch(x.shape[1:], x.device), scope.highest, x)
        return x, torch.full_like(y, target), y != target

    def _marked(self, x: Tensor, clients: Tensor, scope: Scope) -> Tensor:
        """Return the batches of n clients with B examples each, `(n, B, *shape)`, all of them with the trigger."""
        return torch.where(self._patch_of_each(clients, x.shape[2:]), scope.highest, x)

    def patch(self, shape: torch.Size | tuple[int, ...], device: torch.device) -> Tensor:
        """Return where the patch is, as booleans of the shape of one example."""
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
        if len(shape) == 3:
            mask[:, -self.size :, -self.size :] = True
        else:
            mask.view(-1)[-(self.size**2) :] = True
        return mask

    def _patch_of_each(self, clients: Tensor, shape: torch.Size) -> Tensor:
        """Return where each client puts the patch, as booleans that broadcast to `(n, B, *shape)`.

        In this class, every client puts the whole patch on its images.
        """
        return self.patch(shape, clients.device)

    def _checked_target(self, scope: Scope) -> int:
        check_class(type(self).__name__, "target", self.target, scope)
        return self.target


@dataclass(frozen=True)
class Dba(Backdoor):
    r"""Cut the patch of a backdoor into pieces. A malicious client trains with one piece. The test uses all pieces.

    .. math:: \text{patch}_c = \text{piece } (c \bmod p) \text{ of the whole patch}

    c is the id of the client, and p is the number of pieces.

    Parameters
    ----------
    target, size, share, boost
        As in `Backdoor`.
    parts
        The number p of pieces into which the patch is cut, row by row.

    Examples
    --------
    >>> images, classes = torch.zeros(2, 1, 1, 3, 3), torch.zeros(2, 1, dtype=torch.int64)
    >>> poison, scope = Dba(size=2, parts=2, share=1.0), Scope(num_classes=10, highest=1.0)
    >>> changed, _ = poison.change(images, classes, classes, torch.tensor([0, 1]), scope)
    >>> changed[0, 0, 0].int().tolist()  # an image of client 0
    [[0, 0, 0], [0, 1, 1], [0, 0, 0]]
    >>> changed[1, 0, 0].int().tolist()  # an image of client 1
    [[0, 0, 0], [0, 0, 0], [0, 1, 1]]

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
        piece = (order * self.parts // self.size**2).clamp(0, self.parts - 1).view(shape)
        mine = piece == (clients % self.parts).view(-1, *[1] * len(shape))
        return (mine & whole).unsqueeze(1)


@dataclass(frozen=True)
class BlendedBackdoor(Backdoor):
    r"""Teach the model to assign an image to the target class if the image is blended with a fixed pattern.

    The trigger covers the whole image: image x becomes :math:`(1 - \alpha) x + \alpha h p`. Here h is the largest
    value in the data, and p is a random pattern of numbers from 0 to 1. A defence that looks for patches does not
    find this trigger.

    Parameters
    ----------
    target, share, boost
        As in `Backdoor`.
    size
        Not used, since the pattern is as large as the image.
    alpha
        The share :math:`\alpha` of the pattern in the blended image, from 0 to 1. The paper uses 0.2.

    Examples
    --------
    >>> images, classes = torch.zeros(1, 1, 1, 2, 2), torch.zeros(1, 1, dtype=torch.int64)
    >>> poison, scope = BlendedBackdoor(share=1.0), Scope(num_classes=10, highest=1.0)
    >>> changed, _ = poison.change(images, classes, classes, torch.tensor([0]), scope)
    >>> bool((changed > 0).any()), bool((changed <= 0.2).all())  # a fifth of the pattern on a black image
    (True, True)

    References
    ----------
    Chen et al., "Targeted backdoor attacks on deep learning systems using data poisoning", 2017.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("BlendedBackdoor", "alpha", self.alpha, 0, 1)

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Blend the pattern into all images. Images of the target class itself do not count."""
        target = self._checked_target(scope)
        return self._blended(x, x.shape[1:], scope), torch.full_like(y, target), y != target

    def _marked(self, x: Tensor, clients: Tensor, scope: Scope) -> Tensor:
        return self._blended(x, x.shape[2:], scope)

    def _blended(self, x: Tensor, shape: torch.Size, scope: Scope) -> Tensor:
        """Return examples of this shape, blended with the pattern."""
        numbers = torch.arange(math.prod(shape), device=x.device)
        pattern = (uniform(2, numbers).double() / LARGEST).to(x.dtype).view(shape)
        return (1 - self.alpha) * x + self.alpha * scope.highest * pattern
