"""Local training of many clients at once.

The models of n clients are stacked: each parameter is one tensor `(n, *shape)`. A training step runs the model
once, on a batch of each client (see `stacked_module`). Then it differentiates the sum of the clients' losses. The
loss of a client does not depend on the parameters of other clients. So the gradient of the sum contains the
gradient of each client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from flanders.arrays import BoolVector, IntVector
from flanders.checks import check_number
from flanders.models import Layout
from flanders.simulation.poisoning import Poisoner
from flanders.simulation.training.batches import ClientData, Schedule, most_first, schedule
from flanders.simulation.training.optimizers import Optimizer, StackedAdam, StackedSgd
from flanders.simulation.training.options import Training
from flanders.simulation.training.stacked_clients import Stack, bytes_per_client
from flanders.simulation.training.stacked_module import DROPOUT, mixes_examples
from flanders.simulation.training.threads import count_for, side_by_side

log = logging.getLogger("flanders")

CACHE = 32 * 2**20
"""How many bytes may be used by the clients that a CPU trains together: about the size of the CPU's cache."""
FEWEST, MOST = 2, 512
"""The fewest and the most clients that a CPU trains together by default, however large or small the model is."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a round of local training, with a row for each of the m clients."""

    updates: Tensor
    """The d parameters of each client's model, as a row, `(m, d)`."""
    buffers: dict[str, Tensor]
    """The buffers of the models by name, `(m, *shape)` each."""


class ClientTrainer(Protocol):
    """Anything that can train the clients of a round, such as `Trainer`."""

    def train(
        self,
        model: Tensor,
        buffers: Mapping[str, Tensor],
        clients: Sequence[int] | IntVector,
        seed: int,
        *,
        poisoner: Poisoner | None = None,
        poisoned: Sequence[bool] | BoolVector = (),
    ) -> Trained:
        """Train these clients from a global model with these buffers.

        `poisoned` says for each client whether it trains on data that `poisoner` has changed.
        """


class Trainer:
    """Trains clients of one federation.

    Parameters
    ----------
    module
        The model. Its own parameters are not changed.
    data
        The examples of all clients, on the device to train on.
    training
        How to train.
    chunk
        How many clients to train at a time. Default: as many as fit in the memory of a GPU or the cache of a CPU.
        The number affects only rounding errors.
    graphs
        Whether to record training steps as CUDA graphs on a GPU, which makes them faster.
    tf32
        Whether a GPU multiplies matrices in the format TF32, with 10 bits after the point instead of 23.
    """

    def __init__(
        self,
        module: nn.Module,
        data: ClientData,
        training: Training,
        *,
        chunk: int | None = None,
        graphs: bool = True,
        tf32: bool = False,
    ) -> None:
        if chunk is not None:
            check_number("Trainer", "chunk", chunk, 1, whole=True)
        self.data, self.training = data, training
        self.device = data.x.device
        self.module, self.layout = module, Layout.of(module)
        self._graphs, self._fixed_chunk, self._tf32 = graphs, chunk, tf32
        self._mixes_examples = mixes_examples(module)
        self._largest_chunk = chunk or self._fitting(module)
        threads = count_for(self.device)
        self.workers = 1 if threads > 1 and draws_numbers(module, data.x[:1]) else threads
        """How many chunks are trained at the same time, each in a thread of its own."""
        self._stacks: list[Stack] = []

    def train(
        self,
        model: Tensor,
        buffers: Mapping[str, Tensor],
        clients: Sequence[int] | IntVector,
        seed: int,
        *,
        poisoner: Poisoner | None = None,
        poisoned: Sequence[bool] | BoolVector = (),
    ) -> Trained:
        """Train these clients from a global model with these buffers.

        `poisoned` says for each client whether it trains on data that `poisoner` has changed. Apart from rounding
        errors, the result of a client does not depend on the other clients.
        """
        ids = np.asarray(clients, dtype=np.int64)
        malicious = np.asarray(poisoned, dtype=bool)
        if poisoner is None or not malicious.any():
            poisoner, malicious = None, np.zeros(len(ids), dtype=bool)
        updates = torch.empty((len(ids), self.layout.size), device=self.device)
        new_buffers = {name: b.new_empty((len(ids), *b.shape)) for name, b in buffers.items()}

        def train_some(stack: Stack, rows: IntVector) -> None:
            plan = self._plan(ids[rows], seed)
            stack.start(model, buffers)
            chosen = rows[plan.rows]
            stack.poison(poisoner, torch.from_numpy(ids[chosen]), torch.from_numpy(malicious[chosen]))
            for slot in plan.slots(apart=self._mixes_examples):
                stack.take(plan, slot)
            stack.finish(torch.from_numpy(chosen).to(self.device), updates, new_buffers)

        with exact(self.device, seed, tf32=self._tf32):
            self._share_out(most_first(self.data, ids), train_some)
        return Trained(updates, new_buffers)

    def _plan(self, ids: IntVector, seed: int) -> Schedule:
        t, least = self.training, 2 if self._mixes_examples else 1  # batch normalisation needs two examples
        options = {"batch_size": t.batch_size, "epochs": t.epochs, "least": least}
        return schedule(self.data, ids, seed, shuffle=t.shuffle, **options)

    def _share_out(self, order: IntVector, train_some: Callable[[Stack, IntVector], None]) -> None:
        """Train clients in chunks. `order` has the positions of the clients in the list that `train` got.

        A CPU trains several chunks at the same time. If a GPU runs out of memory, the chunks become smaller.
        """
        chunks = cut(order, self.chunk_of(len(order)))
        workers = min(self.workers, len(chunks))
        if workers > 1:
            side_by_side(train_some, self._stacks_for(workers, len(chunks[0])), chunks)
            return
        while chunks:
            try:
                train_some(self._stacks_for(1, len(chunks[0]))[0], chunks[0])
                del chunks[0]
            except torch.OutOfMemoryError:
                if len(chunks[0]) == 1:
                    raise
                chunks = cut(np.concatenate(chunks), self._shrink(len(chunks[0])))

    def chunk_of(self, count: int) -> int:
        """Return how many of `count` clients are trained at a time."""
        if self._fixed_chunk is not None or self.workers == 1:
            return min(self._largest_chunk, count)
        turns = -(-count // (self.workers * self._largest_chunk))  # how many chunks each worker trains
        return -(-count // (self.workers * turns))

    def _stacks_for(self, stacks: int, clients: int) -> list[Stack]:
        """Return `stacks` stacks, each with memory for the models of `clients` clients.

        The stacks of the last round are reused if they are large enough.
        """
        if len(self._stacks) < stacks or self._stacks[0].capacity < clients:
            self._stacks = []  # free the memory first
            self._stacks = [
                Stack(
                    self.module, self.data, clients, self.training.batch_size, self._optimizer, graphs=self._graphs
                )
                for _ in range(stacks)
            ]
        return self._stacks[:stacks]

    def _optimizer(self, parameters: Sequence[Tensor], /) -> Optimizer:
        t = self.training
        if t.optimizer == "adam":
            return StackedAdam(parameters, t.learning_rate)
        return StackedSgd(parameters, t.learning_rate, t.momentum)

    def _shrink(self, too_many: int) -> int:
        """Halve the number of clients that are trained at a time, free the memory, and return the new number."""
        self._largest_chunk, self._stacks = (too_many + 1) // 2, []
        log.info("training %d clients at a time: more do not fit in memory", self._largest_chunk)
        torch.cuda.empty_cache()
        return self._largest_chunk

    def _fitting(self, module: nn.Module) -> int:
        """Return how many clients to train at a time by default."""
        if self.device.type != "cpu":
            return len(self.data.sizes)
        t = self.training
        numbers_kept = 2 if t.optimizer == "adam" else 1 if t.momentum else 0
        needed = bytes_per_client(module, self.data.x[0], t.batch_size, numbers_kept)
        return int(np.clip(CACHE // needed, FEWEST, MOST))


def cut(order: IntVector, chunk: int) -> list[IntVector]:
    """Cut an array into consecutive pieces of at most `chunk` values."""
    return [order[start : start + chunk] for start in range(0, len(order), chunk)]


def draws_numbers(module: nn.Module, x: Tensor) -> bool:
    """Whether a module draws random numbers in training outside of its dropout layers."""
    dropouts = [layer for layer in module.modules() if type(layer) in DROPOUT]
    modes = {layer: layer.training for layer in module.modules()}
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []), torch.no_grad():
        before = torch.get_rng_state()
        try:
            module.train()
            for layer in dropouts:
                layer.eval()
            functional_call(module, buffers, (torch.cat([x, x]),))
            return not torch.equal(before, torch.get_rng_state())
        finally:
            for layer, mode in modes.items():
                layer.training = mode


@contextmanager
def exact(device: torch.device, seed: int, *, tf32: bool = False) -> Iterator[None]:
    """Make PyTorch compute repeatably and in full float32 precision inside the `with` block.

    PyTorch's random generators are seeded with `seed`. This matters only for modules that draw random numbers
    outside of their dropout layers. With `tf32`, a GPU rounds the factors of matrix products to the format TF32.
    """
    devices = [device] if device.type == "cuda" else []
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        with (
            torch.random.fork_rng(devices=devices),
            torch.backends.cudnn.flags(deterministic=True, benchmark=False, allow_tf32=tf32),
        ):
            torch.manual_seed(seed)
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
