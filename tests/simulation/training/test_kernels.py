"""The kernels for a GPU. Without a GPU, Triton can interpret them: set TRITON_INTERPRET=1."""

from __future__ import annotations

import os

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is no GPU, and TRITON_INTERPRET is not 1", allow_module_level=True)

from flanders.simulation.training import kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def expected_norm(x, weight, bias, shift, relu):
    x = x if shift is None else x + shift[:, None, :, None, None]
    mean, var = x.mean((1, 3, 4), keepdim=True), x.var((1, 3, 4), keepdim=True, unbiased=False)
    y = (x - mean) / torch.sqrt(var + 1e-5) * weight[:, None, :, None, None] + bias[:, None, :, None, None]
    return functional.relu(y) if relu else y


def assert_near(found, expected, tolerance=1e-5):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        a, b = a.detach().double(), b.detach().double()
        assert (a - b).norm() <= tolerance * max(1.0, float(b.norm()))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5, 5), (1, 33, 2, 12, 12), (2, 32, 3, 2, 2), (1, 5, 1, 64, 64)])
def test_batch_normalisation_is_what_its_formula_says(shape, relu, shifted):
    torch.manual_seed(0)
    n, _, channels = shape[:3]
    x, weights = 3 * torch.randn(shape) + 1, [torch.randn(n, channels) for _ in range(3 if shifted else 2)]
    inputs = [t.to(DEVICE).requires_grad_() for t in (x, *weights)]
    exact = [t.double().requires_grad_() for t in (x, *weights)]
    mean, var = torch.randn(n, channels, device=DEVICE), torch.rand(n, channels, device=DEVICE)
    before = mean.cpu().clone(), var.cpu().clone()
    shift = inputs[3] if shifted else None
    norm = kernels.Norm(0.1, 1e-5, relu, True)
    y = kernels.normalise_channels(inputs[0], inputs[1], inputs[2], shift, (mean, var), norm)
    z = expected_norm(*exact[:3], exact[3] if shifted else None, relu)
    direction = torch.randn(shape)
    gradients = torch.autograd.grad((y * direction.to(DEVICE)).sum(), inputs)
    expected = torch.autograd.grad((z * direction.double()).sum(), exact)
    assert_near([y.detach().cpu(), *(g.cpu() for g in gradients[:3])], [z.detach(), *expected[:3]])
    if shifted:  # the true gradient is 0, so what is found is rounding
        assert gradients[3].abs().max() < 1e-3
    moved = x if shift is None else x + weights[2][:, None, :, None, None]
    assert_near([mean.cpu(), var.cpu()], [0.9 * before[0] + 0.1 * moved.mean((1, 3, 4)),
                                          0.9 * before[1] + 0.1 * moved.var((1, 3, 4))])  # fmt: skip


def test_in_a_test_batch_normalisation_uses_the_running_statistics():
    torch.manual_seed(0)
    x, (weight, bias, shift, mean) = torch.randn(2, 4, 3, 8, 8), torch.randn(4, 2, 3).unbind()
    var = torch.rand(2, 3) + 0.1
    norm = kernels.Norm(0.1, 1e-5, True, False)
    y = kernels.normalise_channels(
        *(t.to(DEVICE) for t in (x, weight, bias, shift)), (mean.to(DEVICE), var.to(DEVICE)), norm
    )
    for i in range(2):
        z = functional.batch_norm(x[i] + shift[i, :, None, None], mean[i], var[i], weight[i], bias[i])
        assert_near([y[i].cpu()], [functional.relu(z)])


@pytest.mark.parametrize(
    ("shape", "stride", "padding"),
    [
        ((2, 3, 4, 5, 5), 1, 1),
        ((2, 3, 4, 8, 8), 2, 1),
        ((1, 5, 3, 7, 6), 2, 1),
        ((2, 32, 3, 2, 2), 2, 1),
        ((1, 20, 2, 12, 12), 1, 0),
        ((1, 2, 2, 7, 7), 3, 2),
        ((1, 17, 1, 32, 32), 1, 1),
    ],
)
def test_depthwise_convolutions_are_those_of_pytorch(shape, stride, padding):
    torch.manual_seed(0)
    n, _, channels = shape[:3]
    x, weight = torch.randn(shape), torch.randn(n, channels, 1, 3, 3)
    inputs, exact = ([t.to(DEVICE, dtype).requires_grad_() for t in (x, weight)] for dtype in (None, torch.float64))
    exact = [t.detach().cpu().requires_grad_() for t in exact]
    y = kernels.convolve_channels(*inputs, stride, padding)
    z = torch.stack(
        [functional.conv2d(exact[0][i], exact[1][i], None, stride, padding, 1, channels) for i in range(n)]
    )
    direction = torch.randn(z.shape)
    found = torch.autograd.grad((y * direction.to(DEVICE)).sum(), inputs)
    expected = torch.autograd.grad((z * direction.double()).sum(), exact)
    assert_near([y.detach().cpu(), *(g.cpu() for g in found)], [z.detach(), *expected])
    assert torch.equal(kernels.convolve_channels(*inputs, stride, padding), y)
