"""CountSketch, drawn at once or as a model streams by."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.linalg import sketch as module
from flanders.linalg.sketch import CountSketch, StreamedSketch, add_to_buckets


def test_a_sketch_keeps_inner_products(rng):
    matrix, center = rng.normal(size=(5, 4000)), rng.normal(size=4000)
    exact = (matrix - center) @ (matrix - center).T
    sketches = []
    for _ in range(40):
        s = CountSketch.draw(4000, 512, rng).of(matrix, center)
        sketches.append(s @ s.T)
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    assert np.abs(np.mean(sketches, axis=0) - exact).max() < 0.05 * scale.max()


def test_every_parameter_goes_to_its_bucket_with_its_sign():
    sketch = CountSketch(3, np.array([2, 0, 2, 1]), np.array([1, -1, -1, 1]))
    found = sketch.of(np.eye(4), np.zeros(4))
    np.testing.assert_array_equal(found, [[0, 0, 1], [-1, 0, 0], [0, 0, -1], [0, 1, 0]])


def test_the_sketch_is_in_the_library_of_the_matrix(rng, convert):
    matrix, center = rng.normal(size=(3, 900)), rng.normal(size=900)
    sketch = CountSketch.draw(900, 32, np.random.default_rng(0))
    np.testing.assert_allclose(np.asarray(sketch.of(convert(matrix), convert(center))), sketch.of(matrix, center))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_streamed_sketch_draws_sign_and_bucket_of_each_parameter_from_its_secret(rng, monkeypatch, dtype):
    monkeypatch.setattr(module, "STREAMED", 100)
    numbers = rng.normal(size=(30, 10)).astype(dtype)
    total = np.zeros(16)
    StreamedSketch(16, secret=5).add(total, numbers, start=40)
    draws = np.random.default_rng([5, 40])
    expected = np.zeros(16)
    for block in np.split(numbers.ravel(), 3):
        drawn = draws.integers(0, 32, size=100, dtype=np.uint32)
        np.add.at(expected, drawn // 2, np.where(drawn % 2, -1.0, 1.0) * block)
    np.testing.assert_allclose(total, expected)


def test_the_same_secret_sketches_the_pieces_of_a_model_the_same_way(rng):
    numbers, sketch = rng.normal(size=50), StreamedSketch(8, secret=1)
    one, two, other = np.zeros(8), np.zeros(8), np.zeros(8)
    sketch.add(one, numbers, 0)
    sketch.add(two, numbers, 0)
    StreamedSketch(8, secret=2).add(other, numbers, 0)
    assert one.tobytes() == two.tobytes()
    assert not np.allclose(one, other)


def test_buckets_are_added_to_what_is_there():
    total = np.array([1.0, 1.0])
    add_to_buckets(total, np.array([2.0, 3.0]), np.array([1, 1]), np.array([1, -1]))
    np.testing.assert_array_equal(total, [1.0, 0.0])
