"""Layers that a GPU runs together, here with stand-ins for the kernels."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from flanders.models import BatchNorm2d, SentBatchNorm2d
from flanders.simulation.training import stacked_blocks, stacked_layers
from flanders.simulation.training.stacked_blocks import blocks, is_depthwise, on_gpu
from flanders.simulation.training.stacked_module import stacked


class Norm(NamedTuple):
    momentum: float
    eps: float
    relu: bool
    training: bool


def batch_norm(x, weight, bias, shift, statistics, norm):
    x = x if shift is None else x + shift[:, None, :, None, None]
    options = {"training": norm.training, "momentum": norm.momentum, "eps": norm.eps}
    y = stacked_layers.batch_norm(x, weight, bias, *statistics, **options)
    return torch.relu(y) if norm.relu else y


def depthwise(x, weight, stride, padding):
    return stacked_layers.by_groups(x, weight, ((stride,) * 2, (padding,) * 2, (1, 1), weight.shape[1]))


@pytest.fixture
def kernels(monkeypatch):
    name = "flanders.simulation.training.kernels"
    fake = SimpleNamespace(Norm=Norm, normalise_channels=batch_norm, convolve_channels=depthwise)
    monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr(sys.modules["flanders.simulation.training"], "kernels", fake, raising=False)
    monkeypatch.setattr(stacked_blocks, "HAS_KERNELS", True)


def small_mobilenet(norm):
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1, bias=False), norm(4), nn.ReLU()),
        *(nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4, bias=False), norm(4), nn.ReLU()),
        *(nn.Conv2d(4, 6, 1), norm(6), nn.Tanh(), nn.Flatten(), nn.Linear(96, 5)),
    )


def named(module):
    return [(f"{name}.", layer) for name, layer in module.named_children()]


def test_a_convolution_its_normalisation_and_relu_are_one_block():
    found = [[type(layer).__name__ for _, layer in block] for block in blocks(named(small_mobilenet(BatchNorm2d)))]
    assert found == [
        ["Conv2d", "BatchNorm2d", "ReLU"],
        ["Conv2d"],
        ["BatchNorm2d", "ReLU"],
        ["Conv2d", "BatchNorm2d"],
        ["Tanh"],
        ["Flatten"],
        ["Linear"],
    ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, BatchNorm2d, SentBatchNorm2d])
def test_blocks_compute_what_their_layers_compute_one_by_one(kernels, norm, training):
    torch.manual_seed(0)
    module, n = small_mobilenet(norm).train(training), 3
    parameters = {k: torch.rand(n, *p.shape) for k, p in module.named_parameters()}
    buffers = {k: b.repeat(n, *[1] * b.ndim) for k, b in module.named_buffers()}
    x, key = torch.randn(n, 7, 3, 8, 8), torch.zeros(n, dtype=torch.int32)
    states = [({k: t.clone() for k, t in s.items()} for s in (parameters, buffers)) for _ in range(2)]
    (p1, b1), (p2, b2) = states
    expected = stacked(module, training=training)(p1, b1, key, x)
    found = x
    for block in blocks(named(module)):
        together = on_gpu(block)
        if together is None:
            assert len(block) == 1
            found = stacked(nn.Sequential(block[0][1]))(
                {k.replace(block[0][0], "0."): t for k, t in p2.items()}, {}, key, found
            )
        else:
            found = together(p2, b2, found)
    torch.testing.assert_close(found, expected)
    for k, t in {**p1, **b1}.items():
        torch.testing.assert_close({**p2, **b2}[k], t)


def test_without_triton_every_layer_runs_on_its_own(monkeypatch):
    monkeypatch.setattr(stacked_blocks, "HAS_KERNELS", False)
    assert [on_gpu(block) for block in blocks(named(small_mobilenet(BatchNorm2d)))] == [None] * 7


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, groups=2, bias=False),
        nn.Conv2d(4, 8, 3, groups=4, bias=False),
        nn.Conv2d(4, 4, 3, groups=4),
        nn.Conv2d(4, 4, 5, groups=4, bias=False),
        nn.Conv2d(4, 4, 3, groups=4, bias=False, dilation=2),
        nn.Conv2d(4, 4, 3, groups=4, bias=False, stride=(1, 2)),
        nn.Conv2d(4, 4, 3, groups=4, bias=False, padding="same"),
        nn.Conv2d(4, 4, 3, groups=4, bias=False, padding=1, padding_mode="circular"),
    ],
)
def test_other_convolutions_have_no_kernel(layer):
    assert not is_depthwise(layer)
