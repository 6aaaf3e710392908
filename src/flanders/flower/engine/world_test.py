"""The class `WorldTest`: computes losses and gradients on the examples that a simulated server holds.

The Flower engine carries out simulated runs with a `FilteredStrategy` as the server. The filter of this strategy
can ask for the losses and gradients of models.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord

from flanders.arrays import Array, FloatVector, to_numpy
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.server_test import ServerTest
from flanders.hosts.model_arrays import Vector
from flanders.round import Evaluate
from flanders.simulation import World
from flanders.simulation.server import Losses


@dataclass(frozen=True, eq=False)
class HostLosses:
    """Computes losses on the server's examples, and the gradient of the mean loss.

    It takes and returns NumPy arrays. The computation is done with PyTorch on the device of the simulation.
    """

    _losses: Losses
    _device: torch.device

    def __call__(self, vector: Array) -> FloatVector:
        """Return the losses of a model, one for each example."""
        return self._losses(torch.as_tensor(vector, device=self._device))

    def gradient(self, vector: Array) -> Array:
        """Return the gradient of the mean loss with respect to the parameters of a model."""
        return to_numpy(self._losses.gradient(torch.as_tensor(vector, device=self._device)))


class WorldTest(ServerTest):
    """A `ServerTest` with the examples that a simulated server holds.

    Parameters
    ----------
    world
        What the simulation has before its first round, such as the examples of the server.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def of_models(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Evaluate | None:
        """Return a function that takes a flat model and returns its losses; None if the server has no examples."""
        server, device = self._world.server, self._world.device
        if server is None:
            return None
        return HostLosses(server.evaluate(self._buffers(arrays)), device)

    def step(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Vector | None:
        """Train the global model `arrays` on the server's examples. Return the trained model minus the global one.

        Return None if the server has no examples.
        """
        server, device = self._world.server, self._world.device
        if server is None:
            return None
        start = torch.from_numpy(model.flatten(arrays)).to(device)
        return to_numpy(server.step(start, self._buffers(arrays), self._world.seed_of_round(number)))

    def _buffers(self, arrays: ArrayRecord) -> dict[str, torch.Tensor]:
        names, device = [name for name, _ in self._world.module.named_buffers()], self._world.device
        return {name: torch.from_numpy(arrays[name].numpy()).to(device) for name in names}
