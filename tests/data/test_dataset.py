from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.checks import InputError
from flanders.data import Dataset, from_arrays, from_clients, stratified_split
from flanders.data.partition import natural_rows


def test_arrays_are_cast_and_split_by_class(rng):
    x, y = rng.normal(size=(100, 3, 4)), np.repeat([0, 1, 2, 3], 25).astype(np.uint8)
    data = from_arrays(x, y, test_fraction=0.2)
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int64
    assert data.input_shape == (3, 4)
    assert np.bincount(data.y_train).tolist() == [20] * 4
    assert np.bincount(data.y_test).tolist() == [5] * 4
    both = np.concatenate([data.x_train, data.x_test]).reshape(100, -1)
    assert np.array_equal(np.sort(both, axis=0), np.sort(x.astype(np.float32).reshape(100, -1), axis=0))


def test_the_same_seed_splits_alike_and_another_does_not(rng):
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)
    first, again, other = (from_arrays(x, y, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)


def test_given_test_examples_are_kept_apart():
    data = from_arrays([[1.0], [2.0]], [0, 2], [[3.0]], [4], name="mine")
    assert (data.name, data.num_classes, len(data.x_train), len(data.x_test)) == ("mine", 5, 2, 1)


def test_the_callers_arrays_are_not_changed(rng):
    x, y = rng.normal(size=(20, 2)).astype(np.float32), rng.integers(0, 2, 20)
    before = x.copy(), y.copy()
    data = from_arrays(x, y)
    data.x_train[:] = 0
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0]], ["a"]), "return_inverse"),
        (([[1.0]], [0.5]), "whole numbers"),
        (([1.0, 2.0], [0, 1]), r"\(2,\)"),
        (([[1.0], [2.0]], [0]), "classes"),
        (([[1.0], [2.0, 3.0]], [0, 1]), "same shape"),
        ((np.zeros((0, 3)), np.zeros(0, int)), "examples"),
        ((np.full((9, 2), np.nan), [0, 1, 0] * 3), "NaN"),
        ((np.zeros((9, 2)), [-1, 1, 0] * 3), "from 0 to"),
        (([[1.0], [2.0]], [0, 1], [[1.0]]), "y_test"),
        (([[1.0], [2.0]], [0, 1], [[1.0, 2.0]], [0]), "same shape"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        from_arrays(*arguments)


def test_more_classes_than_announced_are_refused():
    with pytest.raises(InputError, match="num_classes"):
        from_arrays(np.zeros((9, 2)), [0, 1, 2] * 3, num_classes=2)


def test_a_dataset_of_other_types_is_refused():
    x, y = np.zeros((2, 1)), np.zeros(2, dtype=np.int64)
    with pytest.raises(InputError, match="from_arrays"):
        Dataset("x", x, y, x, y, 2)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -1, 2.0])
def test_a_split_with_an_empty_part_is_refused(fraction):
    with pytest.raises(InputError, match="test_fraction"):
        stratified_split(np.arange(10) % 2, fraction, np.random.default_rng(0))


@given(st.lists(st.integers(0, 4), min_size=4, max_size=80), st.floats(0.05, 0.95), st.integers(0, 9))
def test_a_split_covers_every_row_once_and_every_class_on_both_sides(labels, fraction, seed):
    y = np.array([0, 0, *labels])
    train, test = stratified_split(y, fraction, np.random.default_rng(seed))
    assert sorted([*train, *test]) == list(range(y.size))
    for label in np.unique(y):
        count = (y == label).sum()
        assert abs((y[test] == label).sum() - fraction * count) <= 1
        if count > 1:
            assert label in y[train]
            assert label in y[test]


def test_a_column_that_names_the_client_of_each_example_is_a_natural_partition():
    x, y = np.arange(24.0).reshape(12, 2), np.arange(12) % 2
    hospitals = ["north", "south", "west"] * 4
    data = from_arrays(x, y, x, y, owners=hospitals)
    assert data.owners.tolist() == [0, 1, 2] * 4
    rows = natural_rows(data.owners, 3, np.random.default_rng(0))
    assert [sorted(r.tolist()) for r in rows] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_examples_taken_for_the_test_leave_the_others_with_their_clients():
    x, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    owners = np.arange(20) // 5
    data = from_arrays(x, y, owners=owners)
    assert data.owners.tolist() == [owners[int(row[0]) // 2] for row in data.x_train]


def test_the_arrays_of_each_client_become_its_own_examples():
    clients = [(np.full((n, 3), n), np.arange(n) % 2) for n in (2, 4, 6)]
    data = from_clients(clients, np.zeros((2, 3)), [0, 1])
    assert data.x_train[:, 0].tolist() == [2] * 2 + [4] * 4 + [6] * 6
    assert data.owners.tolist() == [0] * 2 + [1] * 4 + [2] * 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: from_clients([]), "needs a list with a pair"),
        (lambda: from_clients([(np.zeros((2, 3)),)]), "needs a list with a pair"),
        (lambda: from_clients([(np.zeros((2, 3)), [0.5, 1.0])]), "from_clients, for client 0, needs whole numbers"),
        (
            lambda: from_clients([(np.zeros((2, 3)), [0, 1]), (np.zeros((2, 4)), [0, 1])]),
            "examples of one shape for all clients",
        ),
        (lambda: from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], owners=[0, 1]), r"Got shape \(2,\)"),
        (lambda: natural_rows(np.array([0, 1, 1]), 5, np.random.default_rng(0)), r"Federation\(num_clients=2\)"),
        (lambda: natural_rows(np.array([0, 2, 2]), 3, np.random.default_rng(0)), "Client 1 has no example left"),
        (
            lambda: from_clients(
                [(np.zeros((1, 3)), [0]), (np.zeros((9, 3)), [0, 1] * 4 + [0])], test_fraction=0.9
            ),
            "Every client needs a training example",
        ),
    ],
)
def test_a_natural_partition_that_cannot_be_is_told(make, message):
    with pytest.raises(InputError, match=message):
        make()
