"""Tells which columns of a row of updates belong to which layer of the model.

A row has all parameters of a model, one tensor after the other. The functions take a table `tensors` with the name
of each tensor and its number of parameters, in the order of the row. The `layers` of a `Round` are such a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass


def sizes_of_layers(tensors: Mapping[str, int]) -> tuple[int, ...]:
    """Return the number of parameters of each layer.

    The owner of a tensor is the part of its name before the last dot. Neighbouring tensors with the same owner are
    one layer. A tensor without a dot in its name is a layer of its own.

    Examples
    --------
    >>> sizes_of_layers({"conv.weight": 9, "conv.bias": 1, "scale": 3})
    (10, 3)
    """
    runs = itertools.groupby(tensors, key=lambda name: name.rpartition(".")[0] or name)
    return tuple(sum(tensors[name] for name in run) for _, run in runs)


def last_layer_of(tensors: Mapping[str, int], *, without_owner: int = 1) -> slice:
    """Return the columns of the last layer, as a slice. `sizes_of_layers` says what a layer is.

    If the last tensor has no dot in its name, the last `without_owner` tensors count as the last layer.

    Examples
    --------
    >>> last_layer_of({"conv.weight": 9, "conv.bias": 1, "fc.weight": 4, "fc.bias": 2})
    slice(10, 16, None)
    >>> last_layer_of({"w1": 9, "w2": 4, "b2": 2}, without_owner=2)
    slice(9, 15, None)
    """
    names, d = list(tensors), sum(tensors.values())
    owned = "." in names[-1]
    size = sizes_of_layers(tensors)[-1] if owned else sum(tensors[name] for name in names[-without_owner:])
    return slice(d - size, d)


@dataclass(frozen=True)
class WeightedLayer:
    """The place of a layer's weights in a row of updates. The layer is fully connected or convolutional."""

    name: str
    """The name of the tensor that holds the weights."""
    start: int
    """The column of the first weight."""
    outputs: int
    """The number of outputs. In a convolutional layer, the outputs are its output channels."""
    inputs: int
    """The number of weights of each output."""


def weighted_layers_of(tensors: Mapping[str, int]) -> list[WeightedLayer]:
    """Return the layers with weights and biases, found by the names and sizes of the tensors.

    In such a layer, the tensor of the biases follows the tensor of the weights. Both names are the same before the
    last dot, e.g. `fc.weight` and `fc.bias`. There is one bias for each output. As in PyTorch, the weights of an
    output are neighbours in the row.

    Examples
    --------
    >>> weighted_layers_of({"norm": 8, "fc.weight": 32, "fc.bias": 4})
    [WeightedLayer(name='fc.weight', start=8, outputs=4, inputs=8)]
    """
    column, found = 0, []
    for (name, size), (next_name, next_size) in itertools.pairwise(tensors.items()):
        owner, next_owner = name.rpartition(".")[0], next_name.rpartition(".")[0]
        is_bias = "bias" in next_name.rpartition(".")[2]
        if is_bias and owner and owner == next_owner and 0 < next_size < size and size % next_size == 0:
            found.append(WeightedLayer(name, column, next_size, size // next_size))
        column += size
    return found


def is_fully_connected(tensors: Mapping[str, int]) -> bool:
    """Whether the names and sizes of the tensors show that all layers are fully connected.

    Each layer then has weights and biases, and as many inputs as the layer before it has outputs.

    Examples
    --------
    >>> is_fully_connected({"0.weight": 12, "0.bias": 4, "2.weight": 8, "2.bias": 2})
    True
    >>> is_fully_connected({"conv.weight": 36, "conv.bias": 4, "fc.weight": 128, "fc.bias": 2})
    False
    """
    layers = weighted_layers_of(tensors)
    parameters = sum(layer.outputs * (layer.inputs + 1) for layer in layers)
    chained = all(one.outputs == then.inputs for one, then in itertools.pairwise(layers))
    return bool(layers) and chained and parameters == sum(tensors.values())
