"""The server's own test of the global model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.models import Layout
from flanders.simulation.stacking import stacked

BATCH = 2048


class Evaluator:
    """Tests models on the server's examples.

    Parameters
    ----------
    module
        The model; a copy is used in evaluation mode, with the tensors that `evaluate` is given.
    x, y
        Test examples and their classes, on the device.
    aimed
        Triggered examples, the class they should be taken for, and which of them count (see `DataPoison.aim`).
    """

    def __init__(
        self, module: nn.Module, x: Tensor, y: Tensor, aimed: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> None:
        self._run, self._layout = stacked(module, training=False), Layout.of(module)
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
        own = {name: b[None] for name, b in buffers.items()}
        key = torch.zeros(1, dtype=torch.int32, device=model.device)
        right = torch.zeros((), dtype=torch.float64, device=model.device)
        loss = torch.zeros((), dtype=torch.float64, device=model.device)
        with torch.no_grad():
            for start in range(0, len(y), BATCH):
                part = slice(start, start + BATCH)
                logits = self._run(parameters, own, key, x[None, part])[0]
                right += (logits.argmax(1) == y[part]).sum()
                loss += functional.cross_entropy(logits, y[part], reduction="sum")
        count = max(len(y), 1)
        return float(right) / count, float(loss) / count
