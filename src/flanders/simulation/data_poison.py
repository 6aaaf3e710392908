"""What a data poison is: a way to change the examples that malicious clients train on.

A poisoned client trains like any other client. Its examples are changed when a batch is made, so that the
data are not copied.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from flanders.checks import InputError
from flanders.simulation.laboratory import Laboratory


@dataclass(frozen=True, eq=False)
class Scope:
    """What a data poison needs to know about the data, and what it has learned itself."""

    num_classes: int
    highest: float
    """The largest value in the training examples: the brightness of the brightest pixel."""
    lowest: float = 0.0
    """The smallest value in the training examples."""
    learned: Tensor | None = None
    """What `DataPoison.prepare` returned. `DataPoison.learn` changes the numbers in it before each round."""


class DataPoison(ABC):
    """A way to change the examples that malicious clients train on.

    A new one is a frozen dataclass with `change`, and one line in `DATA_POISONS`.
    """

    @property
    def learns(self) -> bool:
        """Whether `learn` is to be called before every round with malicious clients."""
        return False

    def prepare(self, x: Tensor, y: Tensor, scope: Scope) -> Tensor | None:
        """Return what the poison knows before the first round, from all training examples. Default: nothing."""
        return None

    def learn(self, lab: Laboratory, scope: Scope) -> Tensor:
        """Return new numbers for `scope.learned`, a tensor of the same shape; see `learns`."""
        raise NotImplementedError(f"{type(self).__name__} does not learn.")

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
        """Return test examples, the class that the attacker wants for each, and a mask of the examples that count.

        The examples carry the trigger, if the poison has one. Return None if the attacker wants no particular
        class.
        """
        return None


@dataclass(frozen=True, eq=False)
class Poisoner:
    """A poison, and what it needs to know about the data."""

    poison: DataPoison
    scope: Scope
    frozen: Tensor | None = None
    """Which parameters poisoned clients leave alone in training, `(d,)`. Its values may change between rounds."""

    def apply(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, poisoned: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the batches of n clients. Those of the clients marked in `poisoned`, `(n,)`, are changed."""
        new_x, new_y = self.poison.change(x, y, examples, clients, self.scope)
        if new_x is not x:
            x = torch.where(poisoned.view(-1, *[1] * (x.ndim - 1)), new_x, x)
        return x, torch.where(poisoned[:, None], new_y, y)


def check_class(caller: str, name: str, value: int, scope: Scope) -> None:
    """Complain unless the data has a class of this number."""
    if value >= scope.num_classes:
        raise InputError(f"{caller}({name}={value}) needs a class from 0 to {scope.num_classes - 1}.")
