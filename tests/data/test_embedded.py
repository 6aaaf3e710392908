"""The datasets that need no files."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data import DATASETS, Digits, Synthetic


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_they_load_alike_every_time_and_are_normalised(name):
    first, again = DATASETS.make(name).load(), DATASETS.make(name).load()
    assert first.name == name
    for part in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(first, part), getattr(again, part))
    assert abs(first.x_train.mean()) < 1e-3
    assert abs(first.x_train.std() - 1) < 1e-3
    assert abs(first.x_test.mean()) < 0.05
    assert set(first.y_test) == set(range(first.num_classes))


def test_digits_are_images_split_by_class():
    data = Digits().load()
    assert data.x_train.shape == (1438, 1, 8, 8)
    assert data.x_test.shape == (359, 1, 8, 8)
    assert np.ptp(np.bincount(data.y_test)) <= 2


def test_digits_may_be_tested_as_they_are():
    plain, usual = Digits(normalise_test=False).load(), Digits().load()
    assert (plain.x_test.min(), plain.x_test.max()) == (0, 1)
    assert np.array_equal(plain.x_train, usual.x_train)
    assert np.allclose((plain.x_test - 0.3055) / 0.3761, usual.x_test, atol=1e-6)


def test_digits_without_scikit_learn_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"flanders-fl\[sim\]"):
        Digits().load()


def test_synthetic_classes_are_equal_in_size_and_can_be_told_apart():
    data = Synthetic(num_classes=4, num_features=20, num_samples=400, num_test=200, separation=8.0).load()
    assert np.bincount(data.y_train).tolist() == [100] * 4
    centres = np.stack([data.x_train[data.y_train == k].mean(axis=0) for k in range(4)])
    nearest = ((data.x_test[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == data.y_test).mean() > 0.97


def test_another_seed_draws_other_clouds():
    assert not np.array_equal(Synthetic(seed=1).load().x_train, Synthetic(seed=2).load().x_train)


@pytest.mark.parametrize("parameters", [{"num_classes": 1}, {"num_samples": 0}, {"separation": -1.0}])
def test_a_synthetic_dataset_that_cannot_be_drawn_is_refused(parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        Synthetic(**parameters)


def test_every_loader_can_leave_the_test_examples_as_they_are():
    for name in DATASETS:
        assert DATASETS.describe(name).parameters["normalise_test"] is True
