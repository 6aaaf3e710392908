"""The server's own test of the global model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.models import Layout
from flanders.simulation.training.stacked_module import Stackable, stacked
from flanders.simulation.training.threads import count_for, side_by_side

BATCH = 1000
"""How many examples are evaluated at a time. This limits the memory that activations take."""


class Evaluator:
    """Tests models on the server's examples.

    Parameters
    ----------
    module
        The model. Copies of it run in evaluation mode, with the parameters and buffers that `evaluate` gets.
    x, y
        Test examples and their classes, on the device.
    aimed
        Test examples with the trigger of a backdoor; see `DataPoison.aim`.
    """

    def __init__(
        self, module: nn.Module, x: Tensor, y: Tensor, aimed: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> None:
        self._layout = Layout.of(module)
        self._runs = [stacked(module, training=False) for _ in range(count_for(x.device))]
        self._x, self._y = x, y
        self._aimed = None
        if aimed is not None:
            shown, target, counts = aimed
            self._aimed = (shown[counts], target[counts])

    def evaluate(self, model: Tensor, buffers: Mapping[str, Tensor]) -> tuple[float, float, float]:
        """Return accuracy, mean loss and attack success rate (NaN without triggered examples)."""
        accuracy, loss = self._test(model, buffers, self._x, self._y)
        if self._aimed is None:
            return accuracy, loss, float("nan")
        return accuracy, loss, self._test(model, buffers, *self._aimed)[0]

    def _test(self, model: Tensor, buffers: Mapping[str, Tensor], x: Tensor, y: Tensor) -> tuple[float, float]:
        parameters = self._layout.unflatten(model[None])
        stacked_buffers = {name: b[None] for name, b in buffers.items()}
        key = torch.zeros(1, dtype=torch.int32, device=model.device)

        def count(run: Stackable, part: slice) -> Tensor:
            with torch.no_grad():
                logits = run(parameters, stacked_buffers, key, x[None, part])[0]
                correct = (logits.argmax(1) == y[part]).sum().double()
                return torch.stack([correct, functional.cross_entropy(logits, y[part], reduction="sum").double()])

        parts = [slice(start, start + BATCH) for start in range(0, len(y), BATCH)]
        if not parts:
            return float("nan"), float("nan")
        correct, loss = torch.stack(side_by_side(count, self._runs, parts)).sum(0).tolist()
        return correct / len(y), loss / len(y)
