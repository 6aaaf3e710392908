from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import Gauss, SignFlip, View


def test_gauss_adds_noise_of_the_given_deviation_to_each_clients_own_model() -> None:
    own = np.vstack([np.zeros(20_000), np.full(20_000, 7.0)])
    rows = Gauss(sigma=10.0)(View(own, np.zeros(20_000), num_clients=5), np.random.default_rng(0))
    noise = rows - own
    assert noise.std() == pytest.approx(10.0, rel=0.02)
    assert noise.mean(axis=1) == pytest.approx([0.0, 0.0], abs=0.3)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.03  # each client draws its own


def test_gauss_without_deviation_is_honest() -> None:
    own = np.array([[1.0, 2.0]])
    assert np.array_equal(Gauss(sigma=0)(View(own, np.zeros(2), num_clients=5)), own)


def test_gauss_draws_in_single_precision_for_single_precision_models() -> None:
    own = np.zeros((2, 3), dtype=np.float32)
    rows = Gauss(sigma=1.0)(View(own, own[0], num_clients=5), np.random.default_rng(4))
    assert np.array_equal(rows, np.random.default_rng(4).standard_normal((2, 3), dtype=np.float32))


def test_sign_flip_mirrors_each_model_at_the_global_one() -> None:
    view = View(np.array([[3.0, 1.0], [0.0, 2.0]]), np.array([1.0, 1.0]), num_clients=5)
    assert np.array_equal(SignFlip()(view), [[-1.0, 1.0], [2.0, 0.0]])
    assert np.array_equal(SignFlip(scale=2.0)(view), [[-3.0, 1.0], [3.0, -1.0]])
