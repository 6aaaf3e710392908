"""The model, the data and the training loop, in plain PyTorch."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from flanders.data import Digits, Dirichlet


class DigitsNet(nn.Module):
    """A small network for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return a number for each of the ten digits."""
        return self.output(torch.relu(self.hidden(x.flatten(1))))


def load_share(client: int, num_clients: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the images and the classes of one client. The data come with scikit-learn."""
    data = Digits().load()
    rows = Dirichlet(5.0).split(data.y_train, num_clients, np.random.default_rng(seed))[client]
    return torch.from_numpy(data.x_train[rows]), torch.from_numpy(data.y_train[rows])


def train(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """Train a model in place for two epochs, and return the number of steps."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    batches = [batch for _ in range(2) for batch in torch.randperm(len(y)).split(16)]
    for batch in batches:
        optimizer.zero_grad()
        functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    return len(batches)


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Return the accuracy on test images that no client has."""
    data = Digits().load()
    return (model(torch.from_numpy(data.x_test)).argmax(1).numpy() == data.y_test).mean().item()
