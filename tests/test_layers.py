"""Which columns of a row belong to which layer."""

from __future__ import annotations

import pytest

from flanders.layers import last_layer_of, sizes_of_layers, weighted_layers_of


def test_the_last_layer_is_that_of_the_last_tensor_s_owner():
    tensors = {"conv.weight": 9, "conv.bias": 1, "fc.weight": 4, "fc.bias": 2}
    assert last_layer_of(tensors) == slice(10, 16)
    assert last_layer_of({"a.b.weight": 3, "a.c.weight": 2}) == slice(3, 5)
    assert last_layer_of({"weight": 3, "bias": 2}) == slice(3, 5)
    assert last_layer_of({"weight": 3, "bias": 2}, without_owner=2) == slice(0, 5)
    assert last_layer_of({"x": 1, "weight": 3, "bias": 2}, without_owner=3) == slice(0, 6)


def test_tensors_of_one_owner_make_one_layer():
    assert sizes_of_layers({"a.weight": 3, "a.bias": 1, "norm": 2, "b.c.weight": 5, "a.late": 7}) == (4, 2, 5, 7)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"all": 40},
        {"w": 32, "b": 4},  # no owners
        {"fc.weight": 33, "fc.bias": 4},  # not a whole number of inputs
        {"fc.weight": 4, "fc.bias": 4},  # a scale and a shift
        {"fc.weight": 32, "other.bias": 4},
        {"gru.weight_ih": 32, "gru.weight_hh": 4},
    ],
)
def test_tensors_that_are_no_layer_of_weights_and_bias_are_skipped(tensors):
    assert weighted_layers_of(tensors) == []


def test_a_layer_of_weights_may_come_after_other_tensors():
    (found,) = weighted_layers_of({"norm.weight": 8, "norm.bias": 8, "fc.weight": 32, "fc.bias": 4})
    assert (found.name, found.start, found.outputs, found.inputs) == ("fc.weight", 16, 4, 8)
