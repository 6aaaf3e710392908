"""The batches of local training: which examples each client gets in each step.

There is one copy of the data. A batch is a list of row numbers of this data. If a batch is shorter than other
batches in the same call of the model, it is padded: it gets more row numbers, and their examples do not count in
the loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flanders.arrays import IntVector
from flanders.simulation.hashing import keys, mix64

SHUFFLE, DROPOUT = 1, 2
"""Numbers that are hashed together with the seed, so that shuffling and dropout use different random numbers."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """The training examples of all clients, in one copy on the device, and the rows that belong to each client.

    Parameters
    ----------
    x, y
        All N examples `(N, *input_shape)` and their classes `(N,)`.
    examples
        The row numbers of the first client's examples in `x`, then those of the second client, and so on.
    starts, sizes
        Where each client's rows begin in `examples`, and how many there are.
    """

    x: Tensor
    y: Tensor
    examples: Tensor
    starts: IntVector
    sizes: IntVector

    @classmethod
    def of(cls, x: Tensor, y: Tensor, rows: Sequence[IntVector]) -> ClientData:
        """Return the data of clients. `rows` has an array for each client: the numbers of its rows in `x`."""
        sizes = np.array([len(r) for r in rows], dtype=np.int64)
        joined = torch.from_numpy(np.concatenate(rows).astype(np.int64))
        return cls(x, y, joined.to(x.device), np.cumsum(sizes) - sizes, sizes)


class Slot(NamedTuple):
    """One call of the model, in which the clients `first` to `last - 1` of a schedule take a step together."""

    step: int
    """The number of the step, from 0."""
    first: int
    last: int
    width: int
    """The number of examples in the batch of each client, padding included."""
    full: bool
    """Whether all batches have `width` examples without padding."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """The batches of some clients for one round of local training.

    n is the number of clients, and `steps` is the most steps that one of them takes. The clients with the most
    steps come first. So in every step, the clients that still have steps to take are the first ones. Nothing is
    computed for the other clients.

    Parameters
    ----------
    rows
        For each client of the schedule, its position in the list of clients that `schedule` got.
    table
        The row numbers of each batch in `ClientData.x`, `(n, steps, batch_size)`. A short batch is padded with an
        example of the same client.
    counts
        The sizes of the batches without padding, `(n, steps)`. The size is 0 if the client has no step left to
        take.
    counts_on_device
        A copy of `counts` on the device.
    keys
        Random int32 numbers from which the dropout masks of each step are computed, `(n, steps)`.
    """

    rows: IntVector
    table: Tensor
    counts: NDArray[np.int64]
    counts_on_device: Tensor
    keys: Tensor

    def slots(self, *, apart: bool) -> Iterator[Slot]:
        """Yield the calls of the model in order.

        If `apart` is true, all batches of a call have the same size and no padding. Batch normalisation needs this.
        If it is false, all batches of a step are in one call, and short batches are padded.
        """
        for step in range(self.counts.shape[1]):
            sizes = self.counts[:, step]
            active = int(np.count_nonzero(sizes))
            if active == 0:
                continue
            if not apart:  # the clients that still train come first
                widest = int(sizes[:active].max())
                yield Slot(step, 0, active, widest, bool((sizes[:active] == widest).all()))
                continue
            ends = [*(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
            for first, last in zip([0, *ends[:-1]], ends, strict=True):
                if sizes[first]:
                    yield Slot(step, first, last, int(sizes[first]), True)


def most_first(data: ClientData, clients: IntVector) -> IntVector:
    """Return the positions in `clients`, sorted by the number of examples, the largest number first."""
    return np.argsort(-data.sizes[clients], kind="stable")


def schedule(
    data: ClientData,
    clients: IntVector,
    seed: int,
    *,
    batch_size: int,
    epochs: int,
    shuffle: bool,
    least: int = 1,
) -> Schedule:
    """Plan a round of local training: `epochs` passes over each client's examples, in batches.

    With `shuffle`, the order of a client's examples in an epoch depends only on `seed`, the client's number and the
    epoch. If the last batch of an epoch has fewer than `least` examples, it is left out.
    """
    rows = most_first(data, clients)
    chosen, device = clients[rows], data.x.device
    sizes = data.sizes[chosen]
    per_epoch = -(-sizes // batch_size)
    short = sizes - (per_epoch - 1) * batch_size
    per_epoch = np.where(short < least, per_epoch - 1, per_epoch)
    last_count = np.where(short < least, batch_size, short)
    steps = epochs * int(per_epoch.max(initial=0))
    step = np.arange(steps)[None, :]
    epoch, batch = np.divmod(step, np.maximum(per_epoch, 1)[:, None])
    active = step < (epochs * per_epoch)[:, None]
    counts = np.where(active, np.where(batch == per_epoch[:, None] - 1, last_count[:, None], batch_size), 0)
    order = _orders(data, chosen, seed, epochs, shuffle)
    epoch_index = torch.from_numpy(np.minimum(epoch, epochs - 1)).to(device)[:, :, None]
    place = torch.from_numpy(batch * batch_size).to(device)[:, :, None] + torch.arange(batch_size, device=device)
    place = torch.where(place < torch.from_numpy(sizes).to(device)[:, None, None], place, 0)
    table = order[epoch_index, torch.arange(len(chosen), device=device)[:, None, None], place]
    step_on_device = torch.arange(steps, device=device)[None, :]
    ids = torch.from_numpy(chosen).to(device)[:, None]
    tag = torch.tensor(DROPOUT, device=device)
    dropout_keys = (keys(seed, tag, ids, step_on_device) & 0x7FFFFFFF).to(torch.int32)
    return Schedule(rows, table, counts, torch.from_numpy(counts).to(device), dropout_keys)


def _orders(data: ClientData, clients: IntVector, seed: int, epochs: int, shuffle: bool) -> Tensor:
    """Return the rows of `data.x` that each client goes through in each epoch, `(epochs, n, longest)`.

    n is the number of clients, and `longest` is the most examples that one of them has.
    """
    device = data.x.device
    sizes = torch.from_numpy(data.sizes[clients]).to(device)[:, None]
    starts = torch.from_numpy(data.starts[clients]).to(device)[:, None]
    longest = int(data.sizes[clients].max())
    place = torch.arange(longest, device=device)
    if not shuffle:
        own = torch.where(place[None, :] < sizes, starts + place[None, :], starts)
        return data.examples[own].expand(epochs, -1, -1)
    epoch = torch.arange(epochs, device=device)[:, None]
    ids = torch.from_numpy(clients).to(device)[None, :]
    key = keys(seed, torch.tensor(SHUFFLE, device=device), ids, epoch)[:, :, None]
    drawn = mix64(key ^ mix64(place)[None, None, :]) >> 1  # less than the largest int64, which marks padding
    drawn = torch.where(place < sizes, drawn, torch.iinfo(torch.int64).max)
    order = torch.sort(drawn, dim=-1, stable=True).indices
    return data.examples[starts + torch.where(order < sizes, order, 0)]
