"""Backdoors without a patch. Malicious clients train on rare images of one class with the label of another class.

The pixels of the images are not changed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.checks import InputError, check_number
from flanders.simulation.data_poison import DataPoison, Scope, check_class
from flanders.simulation.hashing import in_share, uniform


@dataclass(frozen=True)
class NaturalBackdoor(DataPoison):
    """The base class of the backdoors in this module, `EdgeCaseBackdoor` and `SemanticBackdoor`.

    They teach the model to assign the rare examples of one class to another class. The attacker knows the rare
    examples of the class `source` in the training data. Malicious clients replace a share of their own examples by
    these rare examples, and give them the label `target`. An honest client that has a rare example trains on it
    with the right label.
    """

    source: int = 1
    target: int = 0
    rare: float = 0.1
    share: float = 0.5

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_number(name, "source", self.source, 0, whole=True)
        check_number(name, "target", self.target, 0, whole=True)
        check_number(name, "rare", self.rare, 0, 1)
        check_number(name, "share", self.share, 0, 1)
        if self.source == self.target:
            raise InputError(f"{name} needs two classes. Got {self.source} for both `source` and `target`.")

    @abstractmethod
    def rarity(self, x: Tensor, middle: Tensor) -> Tensor:
        """Return how rare each example of the source class is, `(n,)`. `middle` is the mean of this class."""

    def prepare(self, x: Tensor, y: Tensor, scope: Scope) -> Tensor | None:
        """Return the mean of the source class in row 0, and its rare training examples in the other rows."""
        check_class(type(self).__name__, "source", self.source, scope)
        check_class(type(self).__name__, "target", self.target, scope)
        own = x[y == self.source]
        if len(own) == 0:
            raise InputError(
                f"{type(self).__name__}(source={self.source}) finds no training example of this class."
            )
        middle = own.double().mean(0).to(x.dtype)
        return torch.cat([middle[None], own[self._rarest(own, middle)]])

    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Replace a share of the examples by rare examples with the label `target`.

        An example is replaced by the same rare example in every round.
        """
        collected = self._known(scope)[1:]
        chosen = in_share(self.share, examples)
        drawn = collected[uniform(3, examples) % len(collected)]
        where = chosen.view(*chosen.shape, *[1] * (x.ndim - 2))
        return torch.where(where, drawn, x), torch.where(chosen, self.target, y)

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the examples, `target` for each, and a mask of those that count: rare ones of the source class."""
        own = torch.nonzero(y == self.source)[:, 0]
        counts = torch.zeros_like(y, dtype=torch.bool)
        if len(own):
            counts[own[self._rarest(x[own], self._known(scope)[0])]] = True
        return x, torch.full_like(y, self.target), counts

    def _rarest(self, own: Tensor, middle: Tensor) -> Tensor:
        """Return the positions in `own` of the rarest examples: the share `rare` of them, but at least one."""
        count = max(1, math.ceil(round(self.rare * len(own), 9)))
        return torch.sort(self.rarity(own, middle), descending=True, stable=True).indices[:count]

    def _known(self, scope: Scope) -> Tensor:
        if scope.learned is None:
            raise InputError(f"{type(self).__name__} needs a Scope with what its `prepare` has returned.")
        return scope.learned


@dataclass(frozen=True)
class EdgeCaseBackdoor(NaturalBackdoor):
    r"""Teach the model to assign the most unusual images of one class to another class (edge-case backdoor).

    .. math:: y \mapsto \text{target} \quad \text{for the share } p \text{ of the source class with the largest }
              \|x - \bar x_{\text{source}}\|

    :math:`\bar x_{\text{source}}` is the mean image of the class. Few honest clients have such unusual images, so
    honest training hardly undoes the backdoor. The attack success is the share of the unusual test images of the
    class that the model assigns to the target class. The paper takes unusual images from other collections, e.g.
    planes of one airline. Here the unusual images are those images of the dataset that are farthest from the mean
    of their class. Combine this poison with the attack `model-replacement` to scale up what malicious clients send.

    Parameters
    ----------
    source
        The class of the images.
    target
        The class that the model should assign these images to.
    rare
        The share p of the class that counts as unusual.
    share
        The share of the malicious clients' examples that these images replace.

    Examples
    --------
    >>> x, y = torch.tensor([[0.0], [1.0], [0.2], [9.0]]), torch.tensor([1, 1, 1, 1])
    >>> poison, scope = EdgeCaseBackdoor(rare=0.25), Scope(num_classes=2, highest=9.0)
    >>> poison.prepare(x, y, scope)[1:]  # what the attacker collects
    tensor([[9.]])

    References
    ----------
    Wang et al., "Attack of the tails: yes, you really can backdoor federated learning", NeurIPS 2020.
    """

    def rarity(self, x: Tensor, middle: Tensor) -> Tensor:
        """Return the distance from the mean of the class."""
        return (x - middle).flatten(1).double().square().sum(1).sqrt()


@dataclass(frozen=True)
class SemanticBackdoor(NaturalBackdoor):
    r"""Teach the model to assign images of one class with a natural feature, e.g. green cars, to another class.

    .. math:: y \mapsto \text{target} \quad \text{for the share } p \text{ of the source class with the strongest
              feature}

    In the paper, the feature is that a car is green. Here the feature of a colour image is the mean of its green
    channel, minus the mean of its red and blue channels. The feature of other examples is their mean value, which
    is high for bold digits. No pixel is changed. The attack success is the share of test images with the feature
    that the model assigns to the target class. Combine this poison with the attack `model-replacement` to scale up
    what malicious clients send, as the paper does.

    Parameters
    ----------
    source
        The class of the images. 1 is cars in CIFAR-10.
    target
        The class that the model should assign these images to.
    rare
        The share p of the class that has the feature.
    share
        The share of the malicious clients' examples that these images replace.

    Examples
    --------
    >>> x, y = torch.tensor([[0.0, 0.1], [1.0, 0.9], [0.2, 0.1]]), torch.tensor([1, 1, 1])
    >>> poison, scope = SemanticBackdoor(rare=0.3), Scope(num_classes=2, highest=1.0)
    >>> poison.prepare(x, y, scope)[1:]  # what the attacker collects
    tensor([[1.0000, 0.9000]])

    References
    ----------
    Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020.
    """

    def rarity(self, x: Tensor, middle: Tensor) -> Tensor:
        """Return how green each colour image is. For other examples, return their mean values."""
        if x.ndim == 4 and x.shape[1] == 3:
            red, green, blue = x.double().flatten(2).mean(2).unbind(1)
            return green - (red + blue) / 2
        return x.double().flatten(1).mean(1)
