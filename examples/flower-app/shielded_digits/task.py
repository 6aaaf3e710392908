"""The model, the data and the training loop, in plain PyTorch."""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.data import Dataset, Digits, Dirichlet


def make_model() -> nn.Module:
    """Return a small network for images of 8 x 8 pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@cache
def load_data() -> Dataset:
    """Return the digits that come with scikit-learn. Nothing is downloaded."""
    return Digits().load()


def load_partition(partition_id: int, num_partitions: int, alpha: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the examples of one client and their classes.

    With the same seed, all nodes compute the same division of the data and take their own part of it.
    """
    data = load_data()
    rows = Dirichlet(alpha).split(data.y_train, num_partitions, np.random.default_rng(seed))[partition_id]
    return torch.from_numpy(data.x_train[rows]), torch.from_numpy(data.y_train[rows])


def train(model: nn.Module, x: Tensor, y: Tensor, *, epochs: int, learning_rate: float, batch_size: int) -> float:
    """Train a model in place and return its last loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: nn.Module) -> tuple[float, float]:
    """Return accuracy and loss on the test examples, which no client has."""
    data = load_data()
    logits, y = model(torch.from_numpy(data.x_test)), torch.from_numpy(data.y_test)
    return (logits.argmax(1) == y).double().mean().item(), functional.cross_entropy(logits, y).item()
