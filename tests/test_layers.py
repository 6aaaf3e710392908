"""Which columns of a row belong to which layer."""

from __future__ import annotations

import pytest

from flanders.layers import (
    is_fully_connected,
    last_layer_of,
    owner_of,
    sizes_of_layers,
    tensors_of,
    weighted_layers_of,
)


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


@pytest.mark.parametrize(
    ("shapes", "tensors"),
    [
        ([(4, 3), (4,), (2, 4), (2,)], {"0.weight": 12, "0.bias": 4, "2.weight": 8, "2.bias": 2}),
        ([(3, 4), (4,), (4, 2), (2,)], {"0.kernel": 12, "0.bias": 4, "2.kernel": 8, "2.bias": 2}),
        ([(4, 4), (4,), (4, 2), (2,)], {"0.kernel": 16, "0.bias": 4, "2.kernel": 8, "2.bias": 2}),  # one decides
        ([(4, 4), (4,)], {"0.weight": 16, "0.bias": 4}),  # both fit: as in PyTorch
        ([(8, 1, 3, 3), (8,), (8,), (8,)], {"0.weight": 72, "0.bias": 8, "0.2": 8, "0.3": 8}),
        ([(4, 3), (2, 4)], {"0.weight": 12, "1.weight": 8}),  # no biases
        ([(7,), (4, 3), (), (4,)], {"0": 7, "1.weight": 12, "1.2": 1, "1.3": 4}),
        ([(4, 3), (0,), (0,)], {"0.weight": 12, "0.1": 0, "0.2": 0}),
        ([(7,), (3,)], {"0": 7, "1": 3}),  # nothing tells the layers
        ([], {}),
    ],
)
def test_the_shapes_of_a_plain_list_tell_its_layers(shapes, tensors):
    assert tensors_of({str(i): shape for i, shape in enumerate(shapes)}) == tensors


def test_no_two_arrays_of_a_list_get_the_same_name():
    tensors = tensors_of({"w": (4, 3), "b": (4,), "bias": (4,), "weight": (2, 4), "1": (5,)})
    assert list(tensors.values()) == [12, 4, 4, 8, 5]


def test_names_that_tell_the_owner_are_kept():
    shapes = {"Dense_0/bias": (4,), "Dense_0/kernel": (3, 4), "out/bias": (2,), "out/kernel": (4, 2)}
    assert tensors_of(shapes) == {"Dense_0/bias": 4, "Dense_0/kernel": 12, "out/bias": 2, "out/kernel": 8}
    assert last_layer_of(tensors_of(shapes)) == slice(16, 26)
    assert [owner_of(name) for name in ("a.b/c", "a/b.c", "/a", "a")] == ["a.b", "a/b", "", ""]


@pytest.mark.parametrize("layout", [1, -1])
def test_layers_of_a_list_are_found_in_both_layouts(layout):
    tensors = tensors_of({"0": (3, 5)[::layout], "1": (3,), "2": (2, 3)[::layout], "3": (2,)})
    first, last = weighted_layers_of(tensors)
    assert (first.outputs, first.inputs, last.outputs, last.inputs) == (3, 5, 2, 3)
    assert first.by_input is last.by_input is (layout == -1)
    assert is_fully_connected(tensors)
