from __future__ import annotations

import dataclasses
import re

import array_api_strict
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import FedAvg
from flanders.arrays import to_numpy
from flanders.checks import InputError, check_choice, check_number, resolve_count
from flanders.defense import Defense
from flanders.round import Round

ROWS = np.arange(6.0).reshape(3, 2)


def complaint(**parts) -> str:
    with pytest.raises(InputError) as caught:
        Round(**{"updates": ROWS, **parts})
    return str(caught.value)


@pytest.mark.parametrize(
    ("updates", "asked", "found", "to_do"),
    [
        ([[1.0, 2.0]], r"an \(m, d\) array", "got list", "Stack"),
        (None, r"an \(m, d\) array", "got NoneType", "Stack"),
        (np.ones(3), r"shape \(clients, parameters\)", r"got \(3,\)", "Flatten"),
        (np.ones((3, 2, 2)), r"shape \(clients, parameters\)", r"got \(3, 2, 2\)", "Flatten"),
        (np.ones((0, 2)), "at least one client and one parameter", r"\(0, 2\)", "Skip the round"),
        (np.ones((2, 0)), "at least one client and one parameter", r"\(2, 0\)", "Skip the round"),
        (np.ones((3, 2), dtype=np.int64), "float32 or float64", "got int64", "Cast"),
        (np.ones((3, 2), dtype=bool), "float32 or float64", "got bool", "Cast"),
        (np.ones((3, 2), dtype=np.float16), "float32 or float64", "got float16", "Cast"),
        (np.ones((3, 2), dtype=complex), "float32 or float64", "got complex128", "Cast"),
        (torch.ones(3, 2, dtype=torch.bfloat16), "float32 or float64", "got torch.bfloat16", "Cast"),
        (torch.ones(3, 2, dtype=torch.int32), "float32 or float64", "got torch.int32", "Cast"),
    ],
    ids=str,
)
def test_updates_that_are_no_matrix_of_floats_are_named_for_what_they_are(updates, asked, found, to_do) -> None:
    message = complaint(updates=updates)
    assert re.search(f"`updates` must .*{asked}.*{found}.*{to_do}", message)


@pytest.mark.parametrize("name", ["global_model", "root"])
@pytest.mark.parametrize(
    ("vector", "says"),
    [
        (np.ones(3), r"must have shape \(parameters,\)=\(2,\), got \(3,\)\. .*as long as a row"),
        (np.ones((1, 2)), r"must have shape \(parameters,\)=\(2,\), got \(1, 2\)"),
        ([1.0, 2.0], r"must have shape \(parameters,\)=\(2,\), got list"),
        (np.array([1.0, np.nan]), "holds NaN or infinite values.*last finite"),
        (np.array([np.inf, 1.0]), "holds NaN or infinite values.*last finite"),
        (torch.ones(2), "must be the same kind of array as `updates`, got torch and numpy"),
        (array_api_strict.ones(2), "must be the same kind of array as `updates`, got array_api_strict"),
    ],
    ids=str,
)
def test_a_vector_that_does_not_fit_the_rows_is_an_error(name, vector, says) -> None:
    assert re.search(f"`{name}` {says}", complaint(**{name: vector}))


def test_a_vector_on_another_device_is_an_error() -> None:
    with pytest.raises(InputError, match=r"`root` is on meta but `updates` are on cpu\. Move one"):
        Round(torch.ones(3, 2), root=torch.ones(2, device="meta"))


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ((1, 2), "must name all 3 rows of `updates`, got 2 ids"),
        ((1, 2, 2), "one update a round, .*more than once: 2. Keep the newest"),
        (("a", "b", "a"), "more than once: a"),
        ((1, 2, 3.0), r"an int or a string, got 3.0 \(float\)"),
        ((1, 2, None), r"an int or a string, got None \(NoneType\)"),
        ((0, 1, True), r"an int or a string, got True \(bool\)"),
        ((0, 1, np.True_), r"an int or a string, got True \(bool\)"),
        (np.array([0.0, 1.0, 2.0]), r"an int or a string, got 0.0 \(float\)"),
    ],
    ids=str,
)
def test_ids_that_do_not_tell_the_clients_apart_are_an_error(clients, says) -> None:
    assert re.search(says, complaint(clients=clients))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([1, 2], "`weights` must be 3 numbers, one per client, got 2"),
        (5, "`weights` must be 3 numbers, one per client, got 5"),
        ("abc", "`weights` must be 3 numbers"),
        ([[1, 2], [3, 4], [5, 6]], "`weights` must be 3 numbers"),
        (np.ones((3, 2)), "`weights` must be 3 numbers"),
        ([10**400, 1, 1], "`weights` must be 3 numbers"),
        ([1, -1, 1], "finite, not negative, and not all zero. Pass numbers of examples"),
        ([0, 0, 0], "finite, not negative, and not all zero"),
        ([1, np.nan, 1], "finite, not negative, and not all zero"),
        ([1, np.inf, 1], "finite, not negative, and not all zero"),
        ([1e308, 1e308, 1], "finite, not negative, and not all zero"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_weights_that_cannot_weigh_are_an_error(weights, says) -> None:
    assert re.search(says, complaint(weights=weights))


def test_what_is_left_out_has_a_default(convert) -> None:
    round_ = Round(convert(ROWS))
    assert round_.clients == (0, 1, 2)
    assert np.array_equal(round_.weights, np.ones(3))
    assert type(round_.global_model) is type(round_.updates)
    assert round_.global_model.dtype == round_.updates.dtype
    assert np.array_equal(to_numpy(round_.global_model), np.zeros(2))
    assert round_.root is None


def test_the_rows_are_not_copied(convert) -> None:
    rows = convert(ROWS)
    assert Round(rows).updates is rows


def test_numpy_ids_become_plain_ones() -> None:
    round_ = Round(ROWS, np.array([7, 5, 9], dtype=np.uint64))
    assert round_.clients == (7, 5, 9)
    assert {type(c) for c in round_.clients} == {int}
    assert {type(c) for c in Round(ROWS, np.array(["a", "b", "c"])).clients} == {str}
    assert Round(ROWS, (1, "1", np.int32(2))).clients == (1, "1", 2)


def test_weights_of_any_kind_become_float64() -> None:
    for weights in ([1, 2, 3], np.array([1, 2, 3], dtype=np.int8), torch.tensor([1, 2, 3]), iter([1, 2, 3])):
        vector = Round(ROWS, weights=weights).weights
        assert vector.dtype == np.float64
        assert np.array_equal(vector, [1.0, 2.0, 3.0])


def test_changing_the_weights_afterwards_does_not_change_the_round() -> None:
    weights = np.ones(3)
    round_ = Round(ROWS, weights=weights)
    weights[0] = 99.0
    assert round_.weights[0] == 1.0


def test_the_global_model_takes_the_dtype_of_the_updates(convert) -> None:
    round_ = Round(convert(ROWS.astype(np.float32)), global_model=convert(np.array([0.1, 0.2])))
    assert round_.global_model.dtype == round_.updates.dtype


def test_a_round_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Round(ROWS).updates = ROWS


def test_taking_rows_takes_their_clients_and_weights_along(convert) -> None:
    round_ = Round(convert(ROWS), ("a", "b", "c"), [1, 2, 3], convert(np.ones(2)), convert(np.full(2, 7.0)))
    part = round_.take([2, 0])
    assert np.array_equal(to_numpy(part.updates), ROWS[[2, 0]])
    assert (part.clients, part.weights.tolist()) == (("c", "a"), [3.0, 1.0])
    assert part.global_model is round_.global_model
    assert part.root is round_.root
    assert round_.take(np.arange(3)) is round_


@given(st.permutations([3, 1, 20, "b", "a", "10"]))
def test_by_client_is_the_same_order_whoever_came_first(ids) -> None:
    round_ = Round(np.ones((6, 1)), tuple(ids))
    assert [round_.clients[i] for i in round_.by_client()] == [1, 3, 20, "10", "a", "b"]


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ({"a": -1, "b": 3}, "`layers` must map each layer's name to its number of parameters"),
        ({"a": 0.5, "b": 1.5}, "`layers` must map each layer's name to its number of parameters"),
        ([1, 1], "`layers` must map each layer's name to its number of parameters"),
        ({"a": 1}, "`layers` must cover all 2 parameters of a row, but the sizes in it add up to 1"),
    ],
    ids=str,
)
def test_layers_that_are_no_sizes_or_not_all_are_an_error(layers, says) -> None:
    assert re.search(says, complaint(layers=layers))


def test_a_round_keeps_no_graph_of_gradients() -> None:
    rows, g = torch.ones(3, 2, requires_grad=True), torch.ones(2, requires_grad=True)
    round_ = Round(rows * 2, global_model=g * 2, root=g)
    assert not any(array.requires_grad for array in (round_.updates, round_.global_model, round_.root))
    assert not FedAvg()(rows).requires_grad


@pytest.mark.parametrize("bad", [-1, 1.5, "2", None, True, np.bool_(True), float("nan"), float("inf")])
def test_a_number_out_of_range_is_named_with_its_range(bad) -> None:
    message = re.escape(f"The `k` parameter of F must be a whole number from 0 to 1. Got {bad!r} instead.")
    with pytest.raises(InputError, match=message):
        check_number("F", "k", bad, 0, 1, whole=True)


def test_a_number_in_range_is_fine() -> None:
    check_number("F", "k", 3, 0, whole=True)
    check_number("F", "k", 0.5, 0, 1)
    check_number("F", "k", np.int64(3), 0, whole=True)
    check_number("F", "k", np.float32(0.5), 0, 1)
    with pytest.raises(InputError, match="Got inf instead"):
        check_number("F", "k", float("inf"), 0)
    with pytest.raises(InputError, match=r"must be a number of at least 2\. Got 1 instead"):
        check_number("F", "k", 1, 2)


def test_a_choice_that_does_not_exist_is_answered_with_a_guess() -> None:
    check_choice("F", "mode", "full", ["full", "sampled"])
    with pytest.raises(
        InputError, match=r"must be one of 'full', 'sampled'\. Got 'sample' instead\. Did you mean 'samp"
    ):
        check_choice("F", "mode", "sample", ["full", "sampled"])


@given(st.integers(1, 200), st.integers(0, 100))
def test_a_fraction_is_a_number_of_clients_rounded_up_but_not_by_rounding_errors(m, percent) -> None:
    assert resolve_count(percent / 100, m) == -(-percent * m // 100)
    assert resolve_count(percent, m) == resolve_count(np.int64(percent), m) == percent


def test_all_rows_in_another_order_are_another_round() -> None:
    turned = Round(ROWS, ("a", "b", "c")).take([2, 1, 0])
    assert turned.clients == ("c", "b", "a")
    assert np.array_equal(turned.updates, ROWS[::-1])


def test_layers_must_name_all_parameters():
    with pytest.raises(InputError, match="all 4 parameters of a row, but the sizes in it add up to 3"):
        Round(np.ones((2, 4)), layers={"w": 2, "b": 1})
    with pytest.raises(InputError, match="all 4 parameters"):
        Defense()(np.ones((2, 4)), layers={"w": 2, "b": 1})


def test_a_part_of_a_round_has_its_layers():
    assert Round(np.ones((2, 4)), layers={"w": 4}).take([1]).layers == {"w": 4}
