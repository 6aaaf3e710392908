"""The base class of data poisons. A data poison changes the examples that malicious clients train on.

The examples are changed batch by batch, so the dataset is not copied. A poisoned client trains like any other
client. But if the attack freezes some parameters, poisoned clients do not train these parameters. The module
`poisoning` has the table of all data poisons.
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
    """What a data poison knows about the data, and what it has learned so far."""

    num_classes: int
    highest: float
    """The largest value in the training examples. In images it is the value of the brightest pixel."""
    lowest: float = 0.0
    """The smallest value in the training examples."""
    learned: Tensor | None = None
    """What `DataPoison.prepare` returned.

    If the poison learns, `DataPoison.learn` computes new values before every round that has malicious clients.
    """


class DataPoison(ABC):
    """A way to change the examples that malicious clients train on.

    To add a data poison, write a frozen dataclass with `change`, and add one line to `DATA_POISONS`.
    """

    @property
    def learns(self) -> bool:
        """Whether the simulator calls `learn` before every round that has malicious clients."""
        return False

    def prepare(self, x: Tensor, y: Tensor, scope: Scope) -> Tensor | None:
        """Return what the poison learns from all training examples before the first round. Default: nothing."""
        return None

    def learn(self, lab: Laboratory, scope: Scope) -> Tensor:
        """Return the new value of `scope.learned`, in the same shape. It is called only if `learns` is true."""
        raise NotImplementedError(f"{type(self).__name__} does not learn.")

    @abstractmethod
    def change(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, scope: Scope
    ) -> tuple[Tensor, Tensor]:
        """Return poisoned examples for the batches of n clients, as if all of them were malicious.

        `x` holds a batch of B examples for each client, `(n, B, *input_shape)`. `y` holds their classes, `(n, B)`.
        `examples` holds their row numbers in the training data, `(n, B)`. `clients` holds the ids of the clients,
        `(n,)`. The arguments must not be changed in place. They may be returned as they are.
        """

    def send(self, trained: Tensor, global_model: Tensor, num_clients: int) -> Tensor:
        """Return what b malicious clients send, `(b, d)`. Default: `trained`, the models that they have trained.

        d is the number of parameters of a model. The round has `num_clients` clients.
        """
        return trained

    def aim(self, x: Tensor, y: Tensor, scope: Scope) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return examples, the class that the attacker wants for each, and a mask of the examples that count.

        With them, the test of the model measures the attack success: the share of counted examples that the model
        assigns to the wanted class. `x` holds clean examples, and `y` their classes. If the poison has a trigger,
        the returned examples carry the trigger. Return None if the attacker wants no particular class.
        """
        return None


@dataclass(frozen=True, eq=False)
class Poisoner:
    """A data poison with its `Scope`. The trainer poisons batches with it."""

    poison: DataPoison
    scope: Scope
    frozen: Tensor | None = None
    """A mask of the d parameters, `(d,)`: true for those that poisoned clients do not train.

    The mask may change between rounds. None means that poisoned clients train all parameters.
    """

    def apply(
        self, x: Tensor, y: Tensor, examples: Tensor, clients: Tensor, poisoned: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the batches of n clients. Only the batches of malicious clients are changed.

        `poisoned` says which clients are malicious, `(n,)`. For the other arguments, see `DataPoison.change`.
        """
        new_x, new_y = self.poison.change(x, y, examples, clients, self.scope)
        if new_x is not x:
            x = torch.where(poisoned.view(-1, *[1] * (x.ndim - 1)), new_x, x)
        return x, torch.where(poisoned[:, None], new_y, y)


def check_class(caller: str, name: str, value: int, scope: Scope) -> None:
    """Raise an error if the data have no class with the number `value`."""
    if value >= scope.num_classes:
        raise InputError(f"{caller}({name}={value}) needs a class from 0 to {scope.num_classes - 1}.")
