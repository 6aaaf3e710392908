"""Tells which columns of a row of updates belong to which layer of the model.

A row has all parameters of a model, one tensor after the other. The functions take a table `tensors` with the name
of each tensor and its number of parameters, in the order of the row. The `layers` of a `Round` are such a table.

The owner of a tensor is the part of its name before the last dot or slash. The tensors `fc.weight` and `fc.bias` of
PyTorch have the owner `fc`, and `dense/kernel` of Keras has the owner `dense`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

BY_INPUT = "kernel"
"""The last part of the name of weights in which the weights of an input are neighbours, as in Keras and Flax."""


def owner_of(name: str) -> str:
    """Return the owner of a tensor; empty if its name has no dot and no slash.

    Examples
    --------
    >>> owner_of("features.0.weight"), owner_of("dense/kernel"), owner_of("weight")
    ('features.0', 'dense', '')
    """
    return name[: max(name.rfind("."), name.rfind("/"), 0)]


def tensors_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the table of tensors of a model, from the shapes of its arrays.

    The names stay as they are if any of them has an owner. Otherwise the arrays come from a plain list, and their
    shapes tell the layers: an array with two or more dimensions is the weights of a new layer, and the vectors that
    follow belong to this layer. The first of them is its biases if it has a number for each output. As in PyTorch,
    the outputs are the first dimension of the weights. If this does not fit the biases of some layer but the last
    dimension does, they are the last dimension in all layers, as in Keras.

    Examples
    --------
    >>> tensors_of({"0": (64, 32), "1": (64,), "2": (10, 64), "3": (10,)})
    {'0.weight': 2048, '0.bias': 64, '2.weight': 640, '2.bias': 10}
    >>> tensors_of({"0": (32, 64), "1": (64,), "2": (64, 10), "3": (10,)})
    {'0.kernel': 2048, '0.bias': 64, '2.kernel': 640, '2.bias': 10}
    >>> tensors_of({"fc.weight": (10, 64), "scale": (1,)})
    {'fc.weight': 640, 'scale': 1}
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if any(owner_of(name) for name in shapes):
        return sizes
    pairs = [(shape, then) for shape, then in itertools.pairwise(shapes.values()) if len(shape) > 1 == len(then)]
    by_input = any(shape[0] != then[0] == shape[-1] for shape, then in pairs)
    found: dict[str, int] = {}
    layer, biases = "", tuple[int, ...]()  # the last weights, and the shape that their biases would have
    for place, (name, shape) in enumerate(shapes.items()):
        if len(shape) > 1:
            layer, biases = name, (shape[-1 if by_input else 0],)
            own = BY_INPUT if by_input else "weight"
        else:
            own = "bias" if shape == biases else str(place)
            biases = ()
        found[f"{layer}.{own}" if layer else name] = sizes[name]
    return found


def sizes_of_layers(tensors: Mapping[str, int]) -> tuple[int, ...]:
    """Return the number of parameters of each layer.

    Neighbouring tensors with the same owner are one layer. A tensor without an owner is a layer of its own.

    Examples
    --------
    >>> sizes_of_layers({"conv.weight": 9, "conv.bias": 1, "scale": 3})
    (10, 3)
    """
    runs = itertools.groupby(tensors, key=lambda name: owner_of(name) or name)
    return tuple(sum(tensors[name] for name in run) for _, run in runs)


def last_layer_of(tensors: Mapping[str, int], *, without_owner: int = 1) -> slice:
    """Return the columns of the last layer, as a slice. `sizes_of_layers` says what a layer is.

    If the last tensor has no owner, the last `without_owner` tensors count as the last layer.

    Examples
    --------
    >>> last_layer_of({"conv.weight": 9, "conv.bias": 1, "fc.weight": 4, "fc.bias": 2})
    slice(10, 16, None)
    >>> last_layer_of({"w1": 9, "w2": 4, "b2": 2}, without_owner=2)
    slice(9, 15, None)
    """
    names, d = list(tensors), sum(tensors.values())
    owned = bool(owner_of(names[-1]))
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
    by_input: bool = False
    """Whether the weights of an input are neighbours in the row. Otherwise those of an output are."""


def weighted_layers_of(tensors: Mapping[str, int]) -> list[WeightedLayer]:
    """Return the layers with weights and biases, found by the names and sizes of the tensors.

    In such a layer, the tensor of the biases follows the tensor of the weights. Both have the same owner, e.g.
    `fc.weight` and `fc.bias`. There is one bias for each output. The weights of an output are neighbours in the
    row, except if their tensor is called `kernel`.

    Examples
    --------
    >>> weighted_layers_of({"norm": 8, "fc.weight": 32, "fc.bias": 4})
    [WeightedLayer(name='fc.weight', start=8, outputs=4, inputs=8, by_input=False)]
    """
    column, found = 0, []
    for (name, size), (next_name, next_size) in itertools.pairwise(tensors.items()):
        owner, next_owner = owner_of(name), owner_of(next_name)
        is_bias = "bias" in next_name[len(next_owner) :]
        if is_bias and owner and owner == next_owner and 0 < next_size < size and size % next_size == 0:
            by_input = name[len(owner) + 1 :] == BY_INPUT
            found.append(WeightedLayer(name, column, next_size, size // next_size, by_input))
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
