"""The class `Stack`: the models of the clients that are trained together, and the training step that they take.

The models are stacked: each parameter is one tensor with a row for each client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.models import Layout
from flanders.simulation.poisoning import Poisoner
from flanders.simulation.training.batches import ClientData, Schedule, Slot
from flanders.simulation.training.graphs import Recordings
from flanders.simulation.training.optimizers import Optimizer
from flanders.simulation.training.stacked_module import DROPOUT, stacked

IGNORED = -100
"""The class of padding (examples that fill up a short batch). `cross_entropy` ignores this class by default."""

Tensors = dict[str, Tensor]


class MakeOptimizer(Protocol):
    """A function that makes an optimizer of stacked parameters."""

    def __call__(self, parameters: Sequence[Tensor], /) -> Optimizer:
        """Return a fresh optimizer."""


class Stack:
    """Memory for the models of up to `capacity` clients. It is reused in every round.

    Everything that a step reads or writes stays at the same address. So steps can be recorded as CUDA graphs (see
    `Recordings`).

    Parameters
    ----------
    module
        The model. The stack uses a copy of it, so that several stacks can work at the same time.
    data
        The examples of all clients.
    capacity, batch_size
        The most clients to train together, and the most examples that each client gets in a step.
    make_optimizer
        Makes an optimizer of the stacked parameters.
    graphs
        Whether to record steps as CUDA graphs on a GPU.
    """

    def __init__(
        self,
        module: nn.Module,
        data: ClientData,
        capacity: int,
        batch_size: int,
        make_optimizer: MakeOptimizer,
        *,
        graphs: bool = True,
    ) -> None:
        device = data.x.device
        self.capacity = capacity
        self._data, self._run = data, stacked(module)
        self._layout = Layout.of(module)

        def room(tensor: Tensor) -> Tensor:
            return torch.zeros((capacity, *tensor.shape), dtype=tensor.dtype, device=device)

        self.parameters = {name: room(p) for name, p in module.named_parameters()}
        self.buffers = {name: room(b) for name, b in module.named_buffers()}
        self._drops = any(type(layer) in DROPOUT for layer in module.modules())
        self._batch = torch.zeros((capacity, batch_size), dtype=torch.int64, device=device)
        self._counts = torch.ones(capacity, dtype=torch.int64, device=device)
        self._keys = torch.zeros(capacity, dtype=torch.int32, device=device)
        self._clients = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._poisoned = torch.zeros(capacity, dtype=torch.bool, device=device)
        self._poisoner: Poisoner | None = None
        self._leaves: dict[tuple[int, int], Tensors] = {}
        self._optimizer = make_optimizer(list(self.parameters.values()))
        self._recordings = Recordings(device, enabled=graphs)

    def start(self, model: Tensor, buffers: Mapping[str, Tensor]) -> None:
        """Set the models of all clients to the global model, and reset the optimizer."""
        self._optimizer.reset()
        for name, tensor in self._layout.unflatten(model).items():
            self.parameters[name].copy_(tensor)
        for name, tensor in buffers.items():
            self.buffers[name].copy_(tensor)

    def poison(self, poisoner: Poisoner | None, clients: Tensor, poisoned: Tensor) -> None:
        """Set the ids of the clients, which of them train on poisoned data, and what poisons the data."""
        self._poisoner = poisoner
        self._clients[: len(clients)] = clients
        self._poisoned[: len(poisoned)] = poisoned

    def take(self, plan: Schedule, slot: Slot) -> None:
        """Take one step with the clients of a slot, which is one call of the model."""
        step, first, last, width, full = slot
        self._batch[first:last, :width] = plan.table[first:last, step, :width]
        if not full:
            self._counts[first:last] = plan.counts_on_device[first:last, step]
        if self._drops:
            self._keys[first:last] = plan.keys[first:last, step]
        self._optimizer.tick(step)
        name = (first, last, width, full, self._poisoner is not None)
        self._recordings.run(name, lambda: self._step(first, last, width, full))

    def finish(self, places: Tensor, updates: Tensor, buffers: Mapping[str, Tensor]) -> None:
        """Write the clients' models into the rows `places` of `updates` and `buffers`."""
        n, start = len(places), 0
        for tensor in self.parameters.values():
            rows = tensor[:n].reshape(n, -1)
            updates[:, start : start + rows.shape[1]].index_copy_(0, places, rows)
            start += rows.shape[1]
        for name, target in buffers.items():
            target.index_copy_(0, places, self.buffers[name][:n])

    def _step(self, first: int, last: int, width: int, full: bool) -> None:
        n, clients = last - first, slice(first, last)
        x, y = self._examples(clients, width)
        if not full:
            places = torch.arange(width, device=y.device)
            y = torch.where(places < self._counts[clients, None], y, IGNORED)
        parameters = self._leaves_of(first, last)
        buffers = {name: b[clients] for name, b in self.buffers.items()}
        logits = self._run(parameters, buffers, self._keys[clients], x)
        losses = functional.cross_entropy(
            logits.reshape(n * width, -1), y.reshape(-1), reduction="none", ignore_index=IGNORED
        )
        loss = losses.sum() / width if full else (losses.view(n, width).sum(1) / self._counts[clients]).sum()
        leaves = list(parameters.values())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            self._optimizer.update(
                leaves, [g.contiguous() for g in self._without_frozen(gradients, clients)], clients
            )

    def _without_frozen(self, gradients: Sequence[Tensor], clients: slice) -> Sequence[Tensor]:
        """Return the gradients, set to zero where a poisoned client must not train a parameter."""
        if self._poisoner is None or self._poisoner.frozen is None:
            return gradients
        masks = self._layout.unflatten(self._poisoner.frozen).values()
        poisoned = self._poisoned[clients]
        return [
            g.masked_fill(poisoned.view(-1, *[1] * mask.ndim) & mask, 0.0)
            for g, mask in zip(gradients, masks, strict=True)
        ]

    def _examples(self, clients: slice, width: int) -> tuple[Tensor, Tensor]:
        batch = self._batch[clients, :width]
        index = batch.reshape(-1)
        x = self._data.x.index_select(0, index).view(*batch.shape, *self._data.x.shape[1:])
        y = self._data.y.index_select(0, index).view(batch.shape)
        if self._poisoner is not None:
            x, y = self._poisoner.apply(x, y, batch, self._clients[clients], self._poisoned[clients])
        return x, y

    def _leaves_of(self, first: int, last: int) -> Tensors:
        """Return the parameters of clients `first` to `last - 1` as leaf tensors in the same memory."""
        if (first, last) not in self._leaves:
            self._leaves[first, last] = {
                name: p[first:last].detach().requires_grad_() for name, p in self.parameters.items()
            }
        return self._leaves[first, last]


def bytes_per_client(module: nn.Module, example: Tensor, batch_size: int, states: int) -> int:
    """Estimate how many bytes a step of one client uses.

    The estimate counts parameters, activations, the gradients of both, and the `states` numbers that the optimizer
    remembers for each parameter.
    """
    values = [example.numel()]

    def count(layer: nn.Module, inputs: Sequence[Tensor], output: Tensor) -> None:
        values.append(2 * output.numel())

    hooks = [layer.register_forward_hook(count) for layer in module.modules() if not list(layer.children())]
    training = module.training
    try:
        with torch.no_grad():
            module.eval()(example[None])
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    parameters = sum(p.numel() for p in module.parameters())
    return 4 * (parameters * (2 + states) + batch_size * sum(values))
