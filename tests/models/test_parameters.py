from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from flanders.checks import InputError
from flanders.models import BatchNorm2d, Layout, tensor_sizes


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3))


@given(st.lists(st.integers(1, 3), max_size=2), st.booleans())
def test_flatten_and_unflatten_undo_each_other_with_any_leading_axes(leading, buffers):
    layout = Layout.of(module(), buffers=buffers)
    vector = torch.round(10 * torch.randn(*leading, layout.size))
    tensors = layout.unflatten(vector)
    assert [tuple(t.shape) for t in tensors.values()] == [(*leading, *shape) for shape in layout.shapes]
    assert torch.equal(layout.flatten(tensors), vector)


def test_the_order_is_that_of_the_parameters_then_of_the_buffers():
    net = module()
    layout = Layout.of(net, buffers=True)
    assert layout.names == (*dict(net.named_parameters()), *dict(net.named_buffers()))
    expected = [t.detach().flatten().float() for t in (*net.parameters(), *net.buffers())]
    assert torch.equal(layout.flatten(net), torch.cat(expected))
    assert tensor_sizes(net) == {name: p.numel() for name, p in net.named_parameters()}


def test_unflattened_parameters_are_views_and_counters_stay_whole():
    layout = Layout.of(module(), buffers=True)
    vector = torch.full((2, layout.size), 2.6)
    tensors = layout.unflatten(vector)
    tensors["0.weight"].zero_()
    assert (vector[:, :18] == 0).all()
    assert tensors["1.num_batches_tracked"].tolist() == [3, 3]
    assert tensors["1.num_batches_tracked"].dtype == torch.int64


def test_flattening_copies_and_needs_no_gradient():
    net = module()
    vector = Layout.of(net).flatten(net)
    assert not vector.requires_grad
    vector.zero_()
    assert net[0].weight.abs().sum() > 0


def test_what_does_not_fit_is_refused():
    layout = Layout.of(module())
    with pytest.raises(InputError, match=f"{layout.size}"):
        layout.unflatten(torch.zeros(layout.size + 1))
    with pytest.raises(InputError, match="missing"):
        layout.flatten({"0.weight": torch.zeros(2, 1, 3, 3)})
    with pytest.raises(InputError, match=r"'0.weight' must have shape \(..., 2, 1, 3, 3\)"):
        layout.flatten({**layout.unflatten(torch.zeros(layout.size)), "0.weight": torch.zeros(2, 1, 3, 2)})
    with pytest.raises(InputError, match="nothing to flatten"):
        Layout.of(nn.ReLU()).flatten({})
