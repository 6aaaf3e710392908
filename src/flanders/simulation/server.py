"""The labelled examples that the server holds.

The server measures the losses of models on these examples (`Round.evaluate`). It also trains the global model on
them, like a client. The change of the model in this training is the server's own step (`Round.root`). Filters and
aggregators use the losses and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.arrays import FloatVector, IntVector
from flanders.checks import InputError
from flanders.models import Layout
from flanders.simulation.training.batches import ClientData
from flanders.simulation.training.options import Training
from flanders.simulation.training.stacked_module import stacked
from flanders.simulation.training.trainer import Trainer, exact

BATCH = 1000
"""How many examples are evaluated at a time. The limit saves memory."""


def hold_out(labels: IntVector, count: int, rng: np.random.Generator) -> tuple[IntVector, IntVector]:
    """Draw `count` training examples for the server. Return their row numbers, and those of all other examples.

    The row numbers are in rising order.

    >>> hold_out(np.zeros(4), 0, np.random.default_rng(0))
    (array([], dtype=int64), array([0, 1, 2, 3]))
    """
    if count >= len(labels):
        raise InputError(
            f"The server cannot hold {count} of {len(labels)} training examples. Leave some for the clients."
        )
    own = np.sort(rng.permutation(len(labels))[:count]) if count else np.empty(0, dtype=np.int64)
    return own, np.setdiff1d(np.arange(len(labels)), own)


@dataclass(frozen=True, eq=False)
class Losses:
    """A function that takes a model and returns its losses on the server's examples.

    The method `gradient` returns the gradient of the mean of these losses.
    """

    _losses: Callable[[Tensor, Mapping[str, Tensor]], Tensor]
    _buffers: Mapping[str, Tensor]

    def __call__(self, model: Tensor) -> FloatVector:
        """Return the losses of a model, one for each example."""
        with torch.no_grad(), exact(model.device, 0):
            losses = self._losses(model, self._buffers)
        return np.asarray(losses.double().cpu().numpy())

    def gradient(self, model: Tensor) -> Tensor:
        """Return the gradient of the mean loss at a model, `(d,)`."""
        at = model.detach().clone().requires_grad_()
        with exact(model.device, 0):
            (gradient,) = torch.autograd.grad(self._losses(at, self._buffers).mean(), at)
        return gradient


class ServerExamples:
    """The examples that the server holds.

    Parameters
    ----------
    module
        The model. Its own parameters are not changed.
    x, y
        The server's examples and their classes, on the device to train on.
    training
        How the clients train. The server uses the same optimizer, learning rate, momentum and batch size.
    steps
        How many batches the server trains on in a round. The server trains for whole epochs, so the number is
        rounded.
    """

    def __init__(self, module: nn.Module, x: Tensor, y: Tensor, training: Training, steps: int) -> None:
        self._layout, self._run = Layout.of(module), stacked(module, training=False)
        self._x, self._y = x, y
        per_epoch = -(-len(y) // training.batch_size)
        epochs = max(1, round(steps / per_epoch))
        own = Training(training.optimizer, training.learning_rate, training.momentum, training.batch_size, epochs)
        data = ClientData.of(x, y, [np.arange(len(y))])
        self._trainer = Trainer(module, data, own, chunk=1)

    def evaluate(self, buffers: Mapping[str, Tensor]) -> Losses:
        """Return a function that takes a model and returns its losses. `buffers` are the buffers of the model."""
        return Losses(self._losses, {name: b[None] for name, b in buffers.items()})

    def _losses(self, model: Tensor, buffers: Mapping[str, Tensor]) -> Tensor:
        key = torch.zeros(1, dtype=torch.int32, device=model.device)  # for dropout, which is off here
        parameters = self._layout.unflatten(model[None])
        losses = []
        for start in range(0, len(self._y), BATCH):
            part = slice(start, start + BATCH)
            logits = self._run(parameters, buffers, key, self._x[None, part])[0]
            losses.append(functional.cross_entropy(logits, self._y[part], reduction="none"))
        return torch.cat(losses)

    def step(self, model: Tensor, buffers: Mapping[str, Tensor], seed: int) -> Tensor:
        """Train a model on the server's examples, and return the change of its parameters, `(d,)`."""
        return self._trainer.train(model, buffers, np.zeros(1, dtype=np.int64), seed).updates[0] - model
