"""Random noise changes all parameters alike, and training does not."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.linalg import noise
from flanders.linalg.noise import standard_errors_from_noise

D = 20_000
PAIRS = np.arange(0, 20, 2), np.arange(1, 20, 2)


def trained(m, seed=0):
    """Rows in which some columns are larger than others, the same ones for all rows."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(size=D)) * rng.normal(size=(m, D))


def test_the_result_is_that_of_the_formula(convert):
    rows, center = trained(6), trained(1, seed=1)[0]
    v = (rows - center) / np.linalg.norm(rows - center, axis=1, keepdims=True)
    rest = (v[[0, 1, 3, 5]] ** 2).sum(axis=0)
    expected = np.sqrt(D) * np.corrcoef(np.log((v[2] - v[4]) ** 2), np.log(rest))[0, 1]
    found = standard_errors_from_noise(convert(rows), convert(center), np.array([2]), np.array([4]))
    np.testing.assert_allclose(found, [expected], rtol=1e-4)


@pytest.mark.parametrize("draw", ["normal", "laplace", "logistic"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_noise_of_any_kind_and_size_is_near_zero(draw, size):
    rows = np.repeat(trained(1), 20, axis=0) + size * getattr(np.random.default_rng(3), draw)(size=(20, D))
    assert np.abs(standard_errors_from_noise(rows, np.zeros(D), *PAIRS)).max() < 3.5


def test_what_training_changes_is_far_from_zero():
    assert standard_errors_from_noise(trained(20), np.zeros(D), *PAIRS).min() > 20


def test_of_many_numbers_some_columns_are_enough(monkeypatch):
    monkeypatch.setattr(noise, "MOST_NUMBERS", 40_000)
    found = standard_errors_from_noise(trained(20), np.zeros(D), *PAIRS)
    assert 5 < found.min() < found.max() < 40


def test_rows_that_are_zero_or_huge_give_numbers():
    rows = trained(20)
    rows[0], rows[1], rows[2] = 0.0, 1e300 * rows[1], 0.0
    assert np.isfinite(standard_errors_from_noise(rows, np.zeros(D), *PAIRS)).all()
