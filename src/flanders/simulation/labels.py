"""Data poisons that change labels: malicious clients train on their own examples with wrong labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.checks import InputError, check_number
from flanders.simulation.data_poison import DataPoison, Scope, check_class
from flanders.simulation.hashing import in_share, uniform


@dataclass(frozen=True)
class LabelFlip(DataPoison):
    r"""Train on reversed labels: with C classes, class y becomes C - 1 - y.

    .. math:: y \mapsto C - 1 - y

    Examples
    --------
    >>> scope = Scope(num_classes=10, highest=1.0)
    >>> images, classes = torch.zeros(1, 3, 1, 8, 8), torch.tensor([[0, 3, 9]])
    >>> LabelFlip().change(images, classes, torch.tensor([[0, 1, 2]]), torch.tensor([0]), scope)[1]
    tensor([[9, 6, 0]])

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
class LabelPairs(DataPoison):
    r"""Train on swapped labels: classes 0 and 1 swap, classes 2 and 3 swap, and so on.

    .. math:: 2k \leftrightarrow 2k + 1

    If the number of classes is odd, the last class keeps its label.

    Examples
    --------
    >>> scope = Scope(num_classes=10, highest=1.0)
    >>> images, classes = torch.zeros(1, 3, 1, 8, 8), torch.tensor([[0, 3, 9]])
    >>> LabelPairs().change(images, classes, torch.tensor([[0, 1, 2]]), torch.tensor([0]), scope)[1]
    tensor([[1, 2, 8]])

    References
    ----------
    Han et al., "Co-teaching: robust training of deep neural networks with extremely noisy labels", NeurIPS 2018
    (pair flipping).
    """

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Swap the labels."""
        return x, torch.where(y < scope.num_classes // 2 * 2, y ^ 1, y)


@dataclass(frozen=True)
class RandomLabels(DataPoison):
    r"""Train on random wrong labels. An example has the same wrong label in every round.

    .. math:: y \mapsto (y + a) \bmod C, \quad a \sim U\{1, \dots, C - 1\}

    C is the number of classes. The number a is drawn once for each example, uniformly from 1 to C - 1.

    Parameters
    ----------
    share
        The share of the malicious clients' examples that get a wrong label.

    Examples
    --------
    >>> scope = Scope(num_classes=10, highest=1.0)
    >>> images, classes = torch.zeros(1, 3, 1, 8, 8), torch.tensor([[0, 3, 9]])
    >>> RandomLabels().change(images, classes, torch.tensor([[0, 1, 2]]), torch.tensor([0]), scope)[1]
    tensor([[9, 8, 6]])

    References
    ----------
    Fang et al., "Local model poisoning attacks to Byzantine-robust federated learning", USENIX Security 2020
    (random label flipping).
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        check_number("RandomLabels", "share", self.share, 0, 1)

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Give a wrong label to a share of the examples. They are the same examples in every round."""
        away = uniform(1, examples) % (scope.num_classes - 1) + 1
        return x, torch.where(in_share(self.share, examples), (y + away) % scope.num_classes, y)


@dataclass(frozen=True)
class TargetedFlip(DataPoison):
    r"""Train on wrong labels for one class: all examples of the class `source` get the label `target`.

    .. math:: y \mapsto \text{target} \quad \text{if } y = \text{source}

    The test of the model measures two numbers on the test examples of the class `source`. The attack success is the
    share of these examples that the model assigns to `target`. The source accuracy is the share of them that the
    model still assigns to `source`. The accuracy counts the test examples of all classes.

    Parameters
    ----------
    source
        The class whose labels are flipped.
    target
        The label that these examples get instead.

    Examples
    --------
    >>> scope = Scope(num_classes=10, highest=1.0)
    >>> images, classes = torch.zeros(1, 3, 1, 8, 8), torch.tensor([[0, 3, 9]])
    >>> poison = TargetedFlip(source=3, target=5)
    >>> poison.change(images, classes, torch.tensor([[0, 1, 2]]), torch.tensor([0]), scope)[1]
    tensor([[0, 5, 9]])

    References
    ----------
    Tolpegin et al., "Data poisoning attacks against federated learning systems", ESORICS 2020.
    """

    source: int = 0
    target: int = 2

    def __post_init__(self) -> None:
        check_number("TargetedFlip", "source", self.source, 0, whole=True)
        check_number("TargetedFlip", "target", self.target, 0, whole=True)
        if self.source == self.target:
            raise InputError(f"TargetedFlip needs two classes. Got {self.source} for both `source` and `target`.")

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Give the label `target` to the examples of `source`."""
        self._check(scope)
        return x, torch.where(y == self.source, self.target, y)

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the examples, `target` for each of them, and a mask that is true for the examples of `source`."""
        self._check(scope)
        return x, torch.full_like(y, self.target), y == self.source

    def _check(self, scope: Scope) -> None:
        check_class("TargetedFlip", "source", self.source, scope)
        check_class("TargetedFlip", "target", self.target, scope)
