"""Fully connected models, for examples of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from flanders.checks import check_number
from flanders.models.model_spec import ModelSpec


@dataclass(frozen=True)
class Logistic(ModelSpec):
    """Logistic regression: one linear layer."""

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the layer from the inputs to the classes."""
        return perceptron(input_shape, [], num_classes)


@dataclass(frozen=True)
class Mlp2(ModelSpec):
    """Two fully connected layers with ReLU between them, the FLANDERS paper's model for MNIST.

    For MNIST, it has 784 inputs, 128 hidden units and 10 outputs, which makes 101,770 parameters.

    Examples
    --------
    >>> Mlp2().build((1, 8, 8), 10)[1]
    Linear(in_features=64, out_features=128, bias=True)
    """

    hidden: int = 128

    def __post_init__(self) -> None:
        check_number("Mlp2", "hidden", self.hidden, 1, whole=True)

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the layers: from the inputs to `hidden` units, and from these to the classes."""
        return perceptron(input_shape, [self.hidden], num_classes)


@dataclass(frozen=True)
class Mlp4(ModelSpec):
    """Four fully connected layers, the FLANDERS paper's model for Fashion-MNIST.

    The three hidden layers have 256, 128 and 64 units. ReLU and dropout follow each hidden layer. For
    Fashion-MNIST, the model has 784 inputs, 10 outputs and 242,762 parameters.
    """

    dropout: float = 0.2

    def __post_init__(self) -> None:
        check_number("Mlp4", "dropout", self.dropout, 0, 1)

    def make(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return the layers. `dropout` is the probability with which a unit is dropped."""
        return perceptron(input_shape, [256, 128, 64], num_classes, self.dropout)


def perceptron(
    input_shape: tuple[int, ...], hidden: Sequence[int], num_classes: int, dropout: float = 0.0
) -> nn.Sequential:
    """Return a sequence of linear layers. `hidden` has the number of units of each hidden layer.

    ReLU follows each hidden layer. If `dropout` is above 0, dropout follows each ReLU.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    before = math.prod(input_shape)
    for width in hidden:
        layers += [nn.Linear(before, width), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        before = width
    return nn.Sequential(*layers, nn.Linear(before, num_classes))
