"""The outputs of models on random inputs. Filters use them to compare models without any data (`Round.outputs`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flanders.arrays import FloatMatrix
from flanders.models import Layout
from flanders.simulation.training.stacked_module import Stackable
from flanders.simulation.training.trainer import exact

BATCH = 2000
"""How many inputs a model gets at a time. The limit saves memory."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """A function that takes a model and returns its class probabilities on random inputs."""

    _run: Stackable
    _layout: Layout
    _input_shape: tuple[int, ...]
    _buffers: Mapping[str, Tensor]

    def __call__(self, model: Tensor, seed: int, count: int) -> FloatMatrix:
        """Return the class probabilities on `count` random inputs, `(count, classes)`.

        The values of the inputs are drawn uniformly between 0 and 1, from a generator with this seed.
        """
        drawn = np.random.default_rng(seed).random((count, *self._input_shape), dtype=np.float32)
        x, parameters = torch.from_numpy(drawn).to(model.device), self._layout.unflatten(model[None])
        key = torch.zeros(1, dtype=torch.int32, device=model.device)  # for dropout, which is off here
        with torch.no_grad(), exact(model.device, 0):
            starts = range(0, count, BATCH)
            parts = [self._run(parameters, self._buffers, key, x[None, s : s + BATCH])[0] for s in starts]
            return np.asarray(torch.cat(parts).double().softmax(1).cpu().numpy())
