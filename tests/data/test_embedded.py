"""The datasets that need no files."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data import DATASETS, BreastCancer, Characters, Digits, Synthetic
from flanders.data.grammar import ALPHABET, NAMES, spelled


@pytest.mark.parametrize("name", ["digits", "synthetic", "breast-cancer"])
def test_they_load_alike_every_time_and_are_normalised(name):
    first, again = DATASETS.make(name).load(), DATASETS.make(name).load()
    assert first.name == name
    for part in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(first, part), getattr(again, part))
    assert abs(first.x_train.mean()) < 1e-3
    assert abs(first.x_train.std() - 1) < 1e-3
    assert abs(first.x_test.mean()) < 0.1
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


def test_the_table_is_scaled_by_column_and_may_be_tested_as_it_is():
    data, plain = BreastCancer().load(), BreastCancer(normalise_test=False).load()
    np.testing.assert_allclose(data.x_train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(data.x_train.std(axis=0), 1, atol=1e-5)
    assert np.array_equal(plain.x_train, data.x_train)
    assert plain.x_test.max() > 1000  # areas are in square micrometres
    assert np.bincount(data.y_test).tolist() == [42, 71]


def sentences(data, rows):
    """Return the text of consecutive examples: the context of the first, and what follows each."""
    first = "".join(ALPHABET[i] for i in data.x_train[rows[0]].argmax(axis=1))
    return first + "".join(ALPHABET[i] for i in data.y_train[rows])


def test_the_text_is_whole_sentences_and_each_example_goes_on_where_the_last_one_was():
    data = Characters(num_samples=3000, num_test=50).load()
    assert set(np.unique(data.x_train)) == {0, 1}
    assert (data.x_train.sum(axis=2) == 1).all()
    assert np.array_equal(data.x_train[1:, :-1], data.x_train[:-1, 1:])
    text = sentences(data, np.arange(3000))
    for sentence in text.split(". ")[:-1]:
        assert any(name in sentence.split() for name in NAMES), sentence
        assert " the " in sentence


def test_each_author_is_a_client_with_favourite_words():
    data = Characters(authors=4, num_samples=20_000, num_test=50).load()
    assert np.bincount(data.owners).tolist() == [5000] * 4
    shares = []
    for author in range(4):
        words = sentences(data, np.flatnonzero(data.owners == author)).replace(".", "").split()
        counts = np.array([words.count(name) for name in NAMES])
        shares.append(counts / counts.sum())
    assert max(np.abs(a - b).max() for a in shares for b in shares) > 0.2
    assert Characters(num_samples=10, num_test=5).load().owners is None


@pytest.mark.parametrize(
    ("number", "words"),
    [(2, "two"), (11, "eleven"), (20, "twenty"), (81, "eighty-one"), (901, "nine hundred and one")],
)
def test_numbers_are_written_spelled(number, words):
    assert spelled(number) == words


@pytest.mark.parametrize("parameters", [{"context": 0}, {"num_samples": 3, "authors": 5}, {"num_test": 0}])
def test_text_that_cannot_be_written_is_refused(parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        Characters(**parameters)


def test_every_loader_can_leave_the_test_examples_as_they_are():
    for name in DATASETS:
        assert DATASETS.describe(name).parameters["normalise_test"] is True
