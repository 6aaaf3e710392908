"""The test of the global model after each round, on the test examples of the dataset.

A data poison changes the examples that malicious clients train on. With some data poisons, the attacker wants the
model to assign certain examples, e.g. images with a patch, to a class that the attacker has chosen. Such examples
are called *aimed*. The test then also measures how often the attacker succeeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.models import Layout
from flanders.simulation.training.stacked_module import Stackable, stacked
from flanders.simulation.training.threads import count_for, side_by_side

BATCH = 1000
"""How many examples are evaluated at a time. The limit saves memory."""
Aimed = tuple[Tensor, Tensor, Tensor]
"""What `DataPoison.aim` returns: examples, the class that the attacker wants for each, and a mask.

The mask says which of the examples are tested.
"""


class Tested(NamedTuple):
    """The results of one model in the test."""

    accuracy: float
    """The share of test examples that the model assigns to the right class."""
    loss: float
    """The mean cross-entropy on the test examples."""
    attack_success: float = math.nan
    """The share of aimed examples that the model assigns to the class that the attacker wants."""
    source_accuracy: float = math.nan
    """The share of aimed examples that the model still assigns to the right class."""


class Evaluator:
    """Tests models on the test examples.

    Parameters
    ----------
    module
        The model. Copies of it run in evaluation mode, with the parameters and buffers that `evaluate` gets.
    x, y
        Test examples and their classes, on the device to test on.
    aim
        A function that returns the aimed examples; see `Aimed`. None if there is no data poison.
    moving
        Whether `aim` may return different examples in each round. If so, each call of `evaluate` calls `aim` again.
    """

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        aim: Callable[[], Aimed | None] | None = None,
        *,
        moving: bool = False,
    ) -> None:
        self._layout = Layout.of(module)
        self._runs = [stacked(module, training=False) for _ in range(count_for(x.device))]
        self._x, self._y = x, y
        self._aim, self._moving = aim, moving
        self._aimed = self._aimed_now()

    def evaluate(self, model: Tensor, buffers: Mapping[str, Tensor]) -> Tested:
        """Return the results of a model. Without aimed examples, `attack_success` and `source_accuracy` are NaN."""
        (accuracy,), loss = self._test(model, buffers, self._x, self._y)
        if self._moving:
            self._aimed = self._aimed_now()
        if self._aimed is None:
            return Tested(accuracy, loss)
        shares, _ = self._test(model, buffers, *self._aimed)
        return Tested(accuracy, loss, *shares)

    def _aimed_now(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the aimed examples that count, the classes that the attacker wants, and the right classes."""
        aimed = None if self._aim is None else self._aim()
        if aimed is None:
            return None
        shown, target, counts = aimed
        return shown[counts], target[counts], self._y[counts]

    def _test(
        self, model: Tensor, buffers: Mapping[str, Tensor], x: Tensor, *labels: Tensor
    ) -> tuple[list[float], float]:
        """Return a share for each tensor of `labels`, and the mean loss.

        A tensor of `labels` has a class for each example. The share of this tensor is the share of examples that
        the model assigns to their class in the tensor. The loss is computed with the classes of the first tensor.
        """
        parameters = self._layout.unflatten(model[None])
        stacked_buffers = {name: b[None] for name, b in buffers.items()}
        key = torch.zeros(1, dtype=torch.int32, device=model.device)  # for dropout, which is off here

        def count(run: Stackable, part: slice) -> Tensor:
            with torch.no_grad():
                logits = run(parameters, stacked_buffers, key, x[None, part])[0]
                predicted = logits.argmax(1)
                matches = [(predicted == y[part]).sum().double() for y in labels]
                loss = functional.cross_entropy(logits, labels[0][part], reduction="sum").double()
                return torch.stack([loss, *matches])

        parts = [slice(start, start + BATCH) for start in range(0, len(x), BATCH)]
        if not parts:
            return [math.nan] * len(labels), math.nan
        loss, *matches = torch.stack(side_by_side(count, self._runs, parts)).sum(0).tolist()
        return [number / len(x) for number in matches], loss / len(x)
