"""Layers for n clients at once: the weights `(n, ...)` of all clients are applied to their batches `(n, B, ...)`.

Such tensors are called stacked: the first axis is the client. B is the number of examples in the batch of each
client.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from flanders.simulation.hashing import mix32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return `x @ weight.T + bias` for each client, in one batched product.

    The weights are the first factor of the product. So their gradient has the same memory layout as the weights,
    and the optimizer needs no copy of it.
    """
    rows = x.reshape(x.shape[0], -1, x.shape[-1]).mT
    product = torch.bmm(weight, rows) if bias is None else torch.baddbmm(bias.unsqueeze(2), weight, rows)
    return product.mT.reshape(*x.shape[:-1], weight.shape[1])


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, options: tuple[Any, Any, Any, int]) -> Tensor:
    """Return the convolution of each client's images with its weights.

    `options` are the stride, padding, dilation and groups. There are several ways to compute the convolution. Which
    one is fastest depends on the options, the size of the kernel and the device.
    """
    stride, padding, dilation, groups = options
    if groups == 1 and tuple(weight.shape[3:]) == (1, 1) and padding == (0, 0):
        output = pointwise(x[..., :: stride[0], :: stride[1]], weight)
    elif groups == 1 and x.is_cuda:
        output = by_windows(x, weight, stride, padding, dilation)
    elif groups == 1:
        output = torch.stack([functional.conv2d(x[i], weight[i], None, *options) for i in range(x.shape[0])])
    else:
        output = by_groups(x, weight, options)
    return output if bias is None else output + bias[:, None, :, None, None]


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """Return 1 x 1 convolutions of images `(n, B, in, H, W)` with weights `(n, out, in, 1, 1)`.

    `in` and `out` are numbers of channels. The result has the shape `(n, B, out, H, W)`.
    """
    n, batch, channels, height, width = x.shape
    columns = x.transpose(1, 2).reshape(n, channels, -1)
    return torch.bmm(weight.flatten(2), columns).view(n, -1, batch, height, width).transpose(1, 2)


def by_windows(x: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any) -> Tensor:
    """Return convolutions, computed as one product of the weights with all windows. This is fastest on a GPU.

    A window is the part of an image that the kernel covers at one position.
    """
    n, batch = x.shape[:2]
    out, _, *kernel = weight.shape[1:]
    if any(padding):
        x = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    for axis in (0, 1):
        x = x.unfold(3 + axis, dilation[axis] * (kernel[axis] - 1) + 1, stride[axis])
    windows = x[..., :: dilation[0], :: dilation[1]]
    height, width = windows.shape[3:5]
    rows = windows.permute(0, 1, 3, 4, 2, 5, 6).reshape(n, batch * height * width, -1)
    return torch.bmm(weight.flatten(2), rows.mT).view(n, out, batch, height, width).transpose(1, 2)


def by_groups(x: Tensor, weight: Tensor, options: tuple[Any, Any, Any, int]) -> Tensor:
    """Return convolutions with groups of channels, e.g. depthwise ones.

    The convolutions of all n clients are computed as one convolution with n times as many groups.
    """
    stride, padding, dilation, groups = options
    n, batch = x.shape[:2]
    together = x.transpose(0, 1).flatten(1, 2)
    output = functional.conv2d(together, weight.flatten(0, 1), None, stride, padding, dilation, n * groups)
    return output.view(batch, n, -1, *output.shape[2:]).transpose(0, 1)


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    *,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Normalise the channels of all clients in one call, as if they were channels of one model.

    Training changes the running statistics `mean` and `var` in place.
    """
    mean, var = (t.view(-1) if training else t.reshape(-1) for t in (mean, var))  # a view is no copy
    together = x.transpose(0, 1).flatten(1, 2)
    scale = None if weight is None else weight.flatten()
    shift = None if bias is None else bias.flatten()
    output = functional.batch_norm(together, mean, var, scale, shift, training, momentum, eps)
    return output.view(x.shape[1], x.shape[0], *x.shape[2:]).transpose(0, 1)


def dropout_mask(key: Tensor, shape: torch.Size, number: int, p: float) -> Tensor:
    """Return the factors of a dropout layer, `(*key.shape, *shape)`: 0 with probability p, else 1 / (1 - p).

    `key` holds a random whole number for each client, which is new in each step. The factors depend only on the
    key, the number of the layer and the position in the layer. They do not depend on the device, or on the other
    clients that are trained at the same time.
    """
    places = torch.arange(shape.numel(), dtype=torch.int32, device=key.device)
    places = mix32(places + number * 0x3504F333 % 2**31)
    drawn = mix32(places ^ key.unsqueeze(-1)) & 0x7FFFFFFF
    keep = (drawn >= int(p * 2**31)).to(torch.float32) / (1 - p) if p < 1 else torch.zeros_like(drawn).float()
    return keep.view(*key.shape, *shape)
