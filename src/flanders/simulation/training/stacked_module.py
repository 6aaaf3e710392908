"""Turn a module for one client into a function for n clients.

The function works on stacked parameters, buffers and batches: tensors whose first axis is the client. If the module
is a sequence of layers, each layer of a known type runs as an operation on stacked tensors (see `stacked_layers`).
This is faster than `torch.func.vmap`, whose overhead is larger than the arithmetic of a small model. Layers of
other types, and modules that are not a sequence, run under `vmap`. Their linear, convolution and dropout layers
still use the operations of `stacked_layers`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from flanders.models import BatchNorm2d, SentBatchNorm2d
from flanders.simulation.training import stacked_layers as layers
from flanders.simulation.training.stacked_blocks import Block, blocks, can_stack, on_gpu, running_statistics

KEY = "dropout_key"
"""The name of the buffer through which a dropout layer under `vmap` gets a client's key.

A key is a random number, new in each step, from which the dropout mask is computed.
"""

Tensors = Mapping[str, Tensor]
Stackable = Callable[[Tensors, Tensors, Tensor, Tensor], Tensor]
"""A function from stacked parameters, buffers, dropout keys `(n,)` and batches `(n, B, ...)` to logits `(n, B, C)`.

B is the number of examples in a batch, and C the number of classes. The function changes the buffers in place.
"""

ELEMENTWISE = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity)
"""The types of layers that treat each value alone. They run on stacked tensors as they are."""
BY_IMAGE = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
"""The types of layers that treat each image alone. They run on the images of all clients as one batch."""
BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNorm2d)
"""The types of batch normalisation layers."""
DROPOUT: dict[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}
"""The types of dropout layers, and whether each drops whole channels."""


def stacked(module: nn.Module, *, training: bool = True) -> Stackable:
    """Return a function that runs a copy of a module for many clients at once."""
    own = copy.deepcopy(module).train(training)
    numbers = {layer: number for number, layer in enumerate(own.modules())}
    if not is_sequence(own):
        return under_vmap(own, numbers)
    leaves = [(name, layer) for name, layer in own.named_modules() if not list(layer.children())]
    named = [(f"{name}." if name else "", layer) for name, layer in leaves]
    links = [
        block_link(block, [link(layer, prefix, numbers[layer]) for prefix, layer in block])
        for block in blocks(named)
    ]

    def run(parameters: Tensors, buffers: Tensors, key: Tensor, x: Tensor) -> Tensor:
        for link_ in links:
            x = link_(parameters, buffers, key, x)
        return x

    return run


def block_link(block: Block, links: Sequence[Stackable]) -> Stackable:
    """Return a function that runs the layers of a block. `links` run them one by one, e.g. on a CPU."""

    def one_by_one(p: Tensors, b: Tensors, key: Tensor, x: Tensor) -> Tensor:
        for link_ in links:
            x = link_(p, b, key, x)
        return x

    together = on_gpu(block)
    if together is None:
        return links[0] if len(links) == 1 else one_by_one
    run, training = together, block[0][1].training

    def either(p: Tensors, b: Tensors, key: Tensor, x: Tensor) -> Tensor:
        can_run = x.is_cuda and x.dtype == torch.float32 and (training or not torch.is_grad_enabled())
        return run(p, b, x) if can_run else one_by_one(p, b, key, x)

    return either


def is_sequence(module: nn.Module) -> bool:
    """Whether a module runs its layers one after the other, and uses no layer or parameter twice."""
    return (
        all(type(layer) is nn.Sequential for layer in module.modules() if list(layer.children()))
        and len(list(module.modules())) == len(list(module.named_modules(remove_duplicate=False)))
        and len(list(module.parameters())) == len(list(module.named_parameters(remove_duplicate=False)))
    )


def mixes_examples(module: nn.Module) -> bool:
    """Whether the output for an example depends on the rest of its batch, as with batch normalisation."""
    return any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules())


def link(layer: nn.Module, prefix: str, number: int) -> Stackable:
    """Return a function that runs one layer for all clients.

    In the whole module, the names of the layer's parameters and buffers begin with `prefix`. `number` is the number
    of the layer. Dropout layers with different numbers draw different masks.
    """
    weight, bias = f"{prefix}weight", f"{prefix}bias"
    if type(layer) is nn.Linear:
        return lambda p, b, key, x: layers.linear(x, p[weight], p.get(bias))
    if can_stack(layer):
        options: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)
        return lambda p, b, key, x: layers.conv2d(x, p[weight], p.get(bias), options)
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return lambda p, b, key, x: x.flatten(2)
    if type(layer) in ELEMENTWISE:
        return lambda p, b, key, x: layer(x)
    if type(layer) in BY_IMAGE:
        return lambda p, b, key, x: layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    if type(layer) in DROPOUT:
        whole, p_ = DROPOUT[type(layer)], float(layer.p)  # type: ignore[arg-type]
        return lambda p, b, key, x: drop(x, key, number, p_, whole) if layer.training else x
    tracks = type(layer) is SentBatchNorm2d or (type(layer) in BATCH_NORM and layer.track_running_stats)
    if tracks and layer.momentum is not None:
        return batch_norm_link(layer, prefix)
    parameters, buffers = dict(layer.named_parameters()), dict(layer.named_buffers())
    run_layer = under_vmap(layer, {layer: number})

    def run(p: Tensors, b: Tensors, key: Tensor, x: Tensor) -> Tensor:
        own_parameters = {name: p[prefix + name] for name in parameters}
        own_buffers = {name: b[prefix + name] for name in buffers}
        return run_layer(own_parameters, own_buffers, key, x)

    return run


def batch_norm_link(layer: Any, prefix: str) -> Stackable:
    """Return a function that runs a batch normalisation layer for all clients."""

    def run(p: Tensors, b: Tensors, key: Tensor, x: Tensor) -> Tensor:
        mean, var, count = running_statistics(prefix, p, b)
        if layer.training:
            count.add_(1)
        return layers.batch_norm(
            x,
            p.get(f"{prefix}weight"),
            p.get(f"{prefix}bias"),
            mean,
            var,
            training=layer.training,
            momentum=layer.momentum,
            eps=layer.eps,
        )

    return run


def drop(x: Tensor, key: Tensor, number: int, p: float, whole: bool) -> Tensor:
    """Apply dropout with probability p to x: to single values, or to `whole` channels.

    The first axes of x are the axes of `key`. Then come the batch and the channels. `number` is the number of the
    layer.
    """
    inner = x.shape[key.ndim :]
    mask = layers.dropout_mask(key, inner[:2] if whole else inner, number, p)
    return x * mask.view(*mask.shape, *[1] * (x.ndim - mask.ndim))


def under_vmap(module: nn.Module, numbers: Mapping[nn.Module, int]) -> Stackable:
    """Return a function that runs a module under `vmap`. Some layers of this module are changed in place."""
    for layer in module.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = _Linear
        elif can_stack(layer):
            layer.__class__ = _Conv2d
        elif type(layer) in DROPOUT:
            layer.whole, layer.number = DROPOUT[type(layer)], numbers[layer]  # type: ignore[assignment]
            layer.__class__ = _Dropout
            layer.register_buffer(KEY, torch.zeros((), dtype=torch.int32))
    dropouts = [name for name, _ in module.named_buffers() if name.rpartition(".")[2] == KEY]

    def forward(parameters: Tensors, buffers: Tensors, key: Tensor, x: Tensor) -> tuple[Tensor, Tensors]:
        state = {**parameters, **buffers, **dict.fromkeys(dropouts, key)}
        output: Tensor = functional_call(module, state, (x,))
        return output, {name: state[name] for name in buffers}

    def run(parameters: Tensors, buffers: Tensors, key: Tensor, x: Tensor) -> Tensor:
        output, after = vmap(forward, randomness="different")(parameters, buffers, key, x)
        with torch.no_grad():
            for name, old in buffers.items():
                if after[name].data_ptr() != old.data_ptr():  # otherwise it was changed in place
                    old.copy_(after[name])
        return output

    return run


class _Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        output: Tensor = _LinearRule.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return output


class _Conv2d(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        options = (self.stride, self.padding, self.dilation, self.groups)
        output: Tensor = _Conv2dRule.apply(input, self.weight, self.bias, options)  # type: ignore[no-untyped-call]
        return output


class _Dropout(nn.Dropout):
    whole: bool
    number: int

    def forward(self, input: Tensor) -> Tensor:
        return drop(input, getattr(self, KEY), self.number, self.p, self.whole) if self.training else input


class _LinearRule(torch.autograd.Function):
    """`functional.linear` with a rule for `vmap`.

    Autograd can differentiate the rule, since it uses ordinary operations.
    """

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return functional.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        x, weight, bias = _clients_first(info, in_dims, inputs)
        return layers.linear(x, weight, bias), 0


class _Conv2dRule(torch.autograd.Function):
    """`functional.conv2d` with a rule for `vmap`, like `_LinearRule`."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, options: Any) -> Tensor:
        return functional.conv2d(x, weight, bias, *options)

    @staticmethod
    def setup_context(ctx: object, inputs: object, output: object) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        x, weight, bias = _clients_first(info, in_dims, inputs[:3])
        return layers.conv2d(x, weight, bias, inputs[3]), 0


def _clients_first(info: Any, in_dims: Any, tensors: Any) -> Any:
    """Return tensors whose first axis is the client. A tensor without such an axis is repeated for each client."""
    return [
        None if t is None else t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
        for t, dim in zip(tensors, in_dims, strict=False)
    ]
