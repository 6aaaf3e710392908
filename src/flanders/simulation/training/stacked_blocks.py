"""Cuts the layers of a module into blocks, some of which run faster on a GPU with kernels of this package.

A block has one layer or a few consecutive layers. There are kernels for two kinds of blocks. One kind is a
depthwise convolution (see `is_depthwise`). The other kind is a batch normalisation. If another convolution comes
just before it, or a ReLU just after it, they belong to its block. The kernels need Triton. Without it, every layer
runs on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from torch import Tensor, nn

from flanders.models import BatchNorm2d, SentBatchNorm2d
from flanders.simulation.training import stacked_layers as layers

Block = Sequence[tuple[str, nn.Module]]
"""Layers that follow each other, each with its prefix, such as `"0."`.

In the whole module, the names of the layer's parameters and buffers begin with this prefix.
"""
OnGpu = Callable[[Mapping[str, Tensor], Mapping[str, Tensor], Tensor], Tensor]
"""A function from parameters, buffers and batches to the output of a block.

All of them are stacked: the first axis is the client.
"""
HAS_KERNELS = find_spec("triton") is not None
"""Whether Triton is installed. It comes with PyTorch for NVIDIA GPUs."""


def blocks(named: Block) -> list[Block]:
    """Cut the layers of a sequence into blocks. Most blocks have one layer."""
    found: list[list[tuple[str, nn.Module]]] = []
    for prefix, layer in named:
        last = found[-1] if found else []
        convolved = len(last) == 1 and can_stack(last[0][1]) and not is_depthwise(last[0][1])
        follows = (normalises(layer) and convolved) or (
            type(layer) is nn.ReLU and bool(last) and normalises(last[-1][1])
        )
        if follows:
            last.append((prefix, layer))
        else:
            found.append([(prefix, layer)])
    return list(found)


def on_gpu(block: Block) -> OnGpu | None:
    """Return a function that runs a block on a GPU, or None if there is no kernel for it."""
    if not HAS_KERNELS:
        return None
    name, layer = block[0]
    if len(block) == 1 and isinstance(layer, nn.Conv2d) and is_depthwise(layer):
        return depthwise_on_gpu(name, layer)
    convolution = (name, layer) if isinstance(layer, nn.Conv2d) else None
    prefix, norm = block[1] if convolution is not None and len(block) > 1 else block[0]
    if not isinstance(norm, nn.BatchNorm2d) or not normalises(norm):
        return None
    return norm_on_gpu(prefix, norm, relu=type(block[-1][1]) is nn.ReLU, convolution=convolution)


def can_stack(layer: nn.Module) -> bool:
    """Whether a layer is a convolution that `layers.conv2d` can compute."""
    return type(layer) is nn.Conv2d and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def normalises(layer: nn.Module) -> bool:
    """Whether a layer is a batch normalisation that the kernel can compute."""
    return (
        isinstance(layer, nn.BatchNorm2d)
        and type(layer) in (nn.BatchNorm2d, BatchNorm2d, SentBatchNorm2d)
        and layer.affine
        and (layer.track_running_stats or type(layer) is SentBatchNorm2d)
        and layer.momentum is not None
    )


def is_depthwise(layer: nn.Module) -> bool:
    """Whether a layer is a depthwise 3 x 3 convolution that the kernel can compute."""
    return (
        isinstance(layer, nn.Conv2d)
        and can_stack(layer)
        and layer.groups == layer.in_channels == layer.out_channels
        and layer.bias is None
        and layer.kernel_size == (3, 3)
        and layer.dilation == (1, 1)
        and layer.stride[0] == layer.stride[1]
        and layer.padding[0] == layer.padding[1]
    )


def running_statistics(
    prefix: str, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the running mean, the running variance and the number of batches of a batch normalisation layer.

    They are buffers, or parameters that gradients do not change (see `SentBatchNorm2d`).
    """
    place = buffers if f"{prefix}running_mean" in buffers else parameters
    mean, var, count = (place[f"{prefix}{name}"] for name in ("running_mean", "running_var", "num_batches_tracked"))
    return mean.detach(), var.detach(), count.detach()


def depthwise_on_gpu(prefix: str, layer: nn.Conv2d) -> OnGpu:
    """Return a function that runs a depthwise convolution."""
    weight, stride, padding = f"{prefix}weight", layer.stride[0], int(layer.padding[0])

    def run(p: Mapping[str, Tensor], b: Mapping[str, Tensor], x: Tensor) -> Tensor:
        from flanders.simulation.training import kernels  # here, since it imports Triton

        return kernels.convolve_channels(x, p[weight], stride, padding)

    return run


def norm_on_gpu(
    prefix: str, norm: nn.BatchNorm2d, *, relu: bool, convolution: tuple[str, nn.Conv2d] | None
) -> OnGpu:
    """Return a function that runs a batch normalisation, after a convolution and before ReLU if there are such.

    The bias of the convolution is added in the kernel of the batch normalisation.
    """
    weight, bias = f"{prefix}weight", f"{prefix}bias"

    def run(p: Mapping[str, Tensor], b: Mapping[str, Tensor], x: Tensor) -> Tensor:
        from flanders.simulation.training import kernels  # here, since it imports Triton

        shift = None
        if convolution is not None:
            name, layer = convolution
            options = (layer.stride, layer.padding, layer.dilation, layer.groups)
            x, shift = layers.conv2d(x, p[f"{name}weight"], None, options), p.get(f"{name}bias")
        mean, var, count = running_statistics(prefix, p, b)
        if norm.training:
            count.add_(1)
        assert norm.momentum is not None  # see `normalises`
        numbers = kernels.Norm(norm.momentum, norm.eps, relu, norm.training)
        return kernels.normalise_channels(x, p[weight], p[bias], shift, (mean, var), numbers)

    return run
