from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import Ipm, Lie, View
from flanders.attacks.statistical import little_is_enough_z
from peers import byzfl

ROWS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def view_of(benign: np.ndarray, b: int = 1, g: np.ndarray | None = None) -> View:
    d = benign.shape[1]
    own = np.full((b, d), 100.0)
    return View(own, np.zeros(d) if g is None else g, num_clients=b + benign.shape[0], benign=benign)


@pytest.mark.parametrize(
    ("m", "b", "z"),
    [
        (50, 24, 1.426),  # the example of the LIE paper: s = 2, Phi(z) = 24/26
        (7, 3, 0.674),  # s = 1, Phi(z) = 3/4
        (6, 2, 0.0),  # s = 2, Phi(z) = 2/4
        (10, 1, -0.140),  # s = 5, Phi(z) = 4/9
        (4, 2, 1.5),
        (10, 9, 1.5),
        (3, 3, 1.5),
    ],
)
def test_lie_moves_by_the_papers_formula_and_by_its_default_from_half_on(m: int, b: int, z: float) -> None:
    assert little_is_enough_z(m, b) == pytest.approx(z, abs=5e-4)


def test_lie_subtracts_z_deviations_of_the_benign_models_from_their_mean() -> None:
    benign = np.array([[1.0, 4.0], [3.0, 8.0]])  # mean (2, 6), deviation (1, 2)
    rows = Lie()(view_of(benign, b=2, g=np.array([5.0, 5.0])))
    np.testing.assert_allclose(rows, [[0.5, 3.0], [0.5, 3.0]])  # b = m/2: z = 1.5


def test_lie_with_a_given_z_ignores_the_formula() -> None:
    assert np.array_equal(Lie(z=0)(view_of(ROWS)), ROWS[1:2])


def test_lie_agrees_with_byzfl_up_to_its_sign_and_its_divisor() -> None:
    expected = byzfl("attacks.attacks").ALittleIsEnough(tau=1.5)(ROWS)  # adds, and divides by n - 1
    assert expected[0] == pytest.approx(8.5)
    ours = Lie(z=1.5 * np.sqrt(3 / 2))(view_of(ROWS))[0]
    np.testing.assert_allclose(2 * ROWS.mean(axis=0) - ours, expected)


def test_ipm_agrees_with_byzfl() -> None:
    expected = byzfl("attacks.attacks").InnerProductManipulation(tau=2.0)(ROWS)
    assert expected[0] == pytest.approx(-8.0)
    np.testing.assert_allclose(Ipm(epsilon=2.0)(view_of(ROWS))[0], expected)


def test_ipm_turns_the_step_and_not_the_model() -> None:
    rows = Ipm(epsilon=0.5)(view_of(ROWS, g=np.array([2.0, 5.0, 8.0])))  # mean step (2, 0, -2)
    np.testing.assert_allclose(rows, [[1.0, 5.0, 9.0]])


def test_small_steps_of_large_single_precision_models_are_not_lost() -> None:
    g = np.full(3, 1000.0, dtype=np.float32)
    benign = g + np.array([[1e-3], [1e-3], [1e-3]], dtype=np.float32) * np.array([1, 0, -1], dtype=np.float32)
    rows = Ipm(epsilon=1.0)(View(benign[:1], g, num_clients=4, benign=benign))
    assert np.array_equal(rows[0] - g, g - benign[0])
