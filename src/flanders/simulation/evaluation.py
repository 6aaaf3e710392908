"""The server's own test of the global model."""

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
"""How many examples are evaluated at a time. This limits the memory that activations take."""
Aimed = tuple[Tensor, Tensor, Tensor]
"""Test examples as an attack shows them, the class that it wants for each, and which of them count."""


class Tested(NamedTuple):
    """How a model did in the test."""

    accuracy: float
    """The share of test examples that are taken for their class."""
    loss: float
    """The mean loss."""
    attack_success: float = math.nan
    """The share of aimed examples that are taken for the class that the attacker wants."""
    source_accuracy: float = math.nan
    """The share of aimed examples that are still taken for their own class."""


class Evaluator:
    """Tests models on the server's examples.

    Parameters
    ----------
    module
        The model. Copies of it run in evaluation mode, with the parameters and buffers that `evaluate` gets.
    x, y
        Test examples and their classes, on the device.
    aim
        Returns the test examples at which an attack aims; see `DataPoison.aim`. None if there is no such attack.
    moving
        Whether `aim` may return something else in every round.
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
        """Return accuracy and mean loss. With an attack that aims, also its success and the source accuracy."""
        (accuracy,), loss = self._test(model, buffers, self._x, self._y)
        if self._moving:
            self._aimed = self._aimed_now()
        if self._aimed is None:
            return Tested(accuracy, loss)
        shares, _ = self._test(model, buffers, *self._aimed)
        return Tested(accuracy, loss, *shares)

    def _aimed_now(self) -> Aimed | None:
        """Return the aimed examples that count, the classes that the attacker wants, and their own classes."""
        aimed = None if self._aim is None else self._aim()
        if aimed is None:
            return None
        shown, target, counts = aimed
        return shown[counts], target[counts], self._y[counts]

    def _test(
        self, model: Tensor, buffers: Mapping[str, Tensor], x: Tensor, *labels: Tensor
    ) -> tuple[list[float], float]:
        """Return the share of examples that are taken for each of some labels, and the mean loss on the first."""
        parameters = self._layout.unflatten(model[None])
        stacked_buffers = {name: b[None] for name, b in buffers.items()}
        key = torch.zeros(1, dtype=torch.int32, device=model.device)

        def count(run: Stackable, part: slice) -> Tensor:
            with torch.no_grad():
                logits = run(parameters, stacked_buffers, key, x[None, part])[0]
                found = logits.argmax(1)
                correct = [(found == y[part]).sum().double() for y in labels]
                loss = functional.cross_entropy(logits, labels[0][part], reduction="sum").double()
                return torch.stack([loss, *correct])

        parts = [slice(start, start + BATCH) for start in range(0, len(x), BATCH)]
        if not parts:
            return [math.nan] * len(labels), math.nan
        loss, *correct = torch.stack(side_by_side(count, self._runs, parts)).sum(0).tolist()
        return [number / len(x) for number in correct], loss / len(x)
