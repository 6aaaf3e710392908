"""Two layers of stacked models as GPU kernels: batch normalisation and depthwise convolution.

A MobileNet consists of these two layers, of ReLU and of 1 x 1 convolutions. PyTorch's own operations expect the
channels of one image side by side. So the images of n clients have to be copied before and after each layer. Here
the channels of a client stay where the 1 x 1 convolution, a matrix product, has put them. Each channel is a *row*:
the values of all its images, one image after the other. A kernel reads and writes whole rows.

This module needs Triton, which comes with PyTorch for NVIDIA GPUs. All kernels compute in float32, and give the
same bytes in every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from flanders.simulation.training import triton_programs as programs

KERNEL = 3
"""The side of the windows that `convolve_channels` can compute: the only one that MobileNet has."""
MANY = 1024
"""The most values that one program of a kernel treats at a time, so that they stay in registers."""


Context = Any
"""What PyTorch passes from the forward to the backward pass. Its attributes have no types."""


class Norm(NamedTuple):
    """The numbers of a batch normalisation layer, other than its tensors."""

    momentum: float
    eps: float
    relu: bool
    """Whether ReLU follows."""
    training: bool


def normalise_channels(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    shift: Tensor | None,
    statistics: tuple[Tensor, Tensor],
    norm: Norm,
) -> Tensor:
    """Normalise the channels of stacked images `(n, B, C, H, W)`.

    `weight`, `bias` and `shift` have a value for each client and channel, `(n, C)`. `shift` is added to the images
    first: the bias of a convolution. `statistics` are the running mean and variance, `(n, C)`. Training changes
    them in place. A test uses them, and cannot be differentiated.
    """
    n, batch, channels, *image = x.shape
    rows = x.transpose(1, 2).reshape(n * channels, -1)
    if norm.training:
        flat = None if shift is None else shift.reshape(-1)
        y = _batch_norm(rows, weight.reshape(-1), bias.reshape(-1), flat, *statistics, norm)
    else:
        mean, var = statistics
        scale = weight * torch.rsqrt(var + norm.eps)
        y = _scaled(rows, scale, bias + ((0 if shift is None else shift) - mean) * scale, norm.relu)
    return y.view(n, channels, batch, *image).transpose(1, 2)


def convolve_channels(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """Return 3 x 3 convolutions in which each channel has a window of its own.

    The images have the shape `(n, B, C, H, W)`, and the weights `(n, C, 1, 3, 3)`.
    """
    return _depthwise(x.transpose(1, 2), weight, stride, padding).transpose(1, 2)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        shift: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        norm: Norm,
    ) -> Tensor:
        y, (rows, size) = torch.empty_like(x), x.shape
        moments = x.new_empty((2, rows))
        block, warps = _block(size)
        programs.norm_forward[(rows,)](
            *(x, y, weight, bias, x if shift is None else shift, moments, running_mean, running_var),
            *(rows, size, norm.momentum, norm.eps),
            SHIFTED=shift is not None,
            RELU=norm.relu,
            BLOCK=block,
            num_warps=warps,
        )
        ctx.save_for_backward(x, weight, bias, shift, moments)
        ctx.relu = norm.relu
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, shift, moments = ctx.saved_tensors
        gradient, (rows, size) = gradient.contiguous(), x.shape
        dx, sums = torch.empty_like(x), x.new_empty((3, rows))
        block, warps = _block(size)
        programs.norm_backward[(rows,)](
            *(gradient, x, dx, weight, bias, x if shift is None else shift, moments, sums, rows, size),
            SHIFTED=shift is not None,
            RELU=ctx.relu,
            BLOCK=block,
            num_warps=warps,
        )
        return dx, sums[0], sums[1], None if shift is None else sums[2], None, None, None


def _scaled(x: Tensor, scale: Tensor, shift: Tensor, relu: bool) -> Tensor:
    """Multiply each row by its number of `scale`, and add its number of `shift`."""
    y, (rows, size) = torch.empty_like(x), x.shape
    block = min(MANY, triton.next_power_of_2(size))
    grid = rows, triton.cdiv(size, block)
    programs.scale_and_shift[grid](x, y, scale.contiguous(), shift.contiguous(), size, RELU=relu, BLOCK=block)
    return y


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        n, channels, batch, height, width = x.shape
        out = [(side + 2 * padding - KERNEL) // stride + 1 for side in (height, width)]
        y = x.new_empty((n, channels, batch, *out))
        size = batch * out[0] * out[1]
        block, warps = (MANY, 4) if size >= MANY else (min(256, triton.next_power_of_2(size)), 1)
        programs.depthwise_forward[(n * channels, triton.cdiv(size, block))](
            *(x, weight, y, batch, height, width, *out, stride, padding),
            BLOCK=block,
            num_warps=warps,
        )
        ctx.save_for_backward(x, weight)
        ctx.geometry = (*out, stride, padding)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous()
        n, channels, batch, height, width = x.shape
        dx, dw = torch.empty_like(x), torch.empty_like(weight)
        block, warps = (512, 4) if batch * height * width >= 16384 else (128, 1)
        programs.depthwise_backward[(n * channels,)](
            *(gradient, x, weight, dx, dw, batch, height, width, *ctx.geometry),
            BLOCK=block,
            num_warps=warps,
        )
        return dx, dw, None, None


def _block(size: int) -> tuple[int, int]:
    """Return how many values of a row of `size` values a program reads at a time, and its number of warps.

    A row is read twice. If a long row gets many warps, fewer rows are read at the same time, and the second reading
    comes from the cache. The numbers were the fastest of nine on an H200, for rows of 128 to 32,768 values.
    """
    if size >= 16384:
        return 8192, 32
    if size >= 4096:
        return 4096, 16
    return (MANY, 4) if size >= MANY else (triton.next_power_of_2(size), 1)


_batch_norm: Callable[..., Tensor] = _BatchNorm.apply
_depthwise: Callable[..., Tensor] = _Depthwise.apply
