from __future__ import annotations

import numpy as np
import pytest

from flanders import InputError, Round
from flanders.filters import FlameFilter


def kept(filter_, rows, **parts):
    return filter_.select(filter_.score(None, Round(rows, **parts))).tolist()


def test_a_minority_with_another_direction_is_dropped_whatever_its_length():
    rng = np.random.default_rng(0)
    rows = np.ones((10, 50)) + 0.2 * rng.normal(size=(10, 50))
    rows[:4] = 1e-3 * (np.tile([1.0, -1.0], 25) + 0.2 * rng.normal(size=(4, 50)))
    assert kept(FlameFilter(), rows) == [4, 5, 6, 7, 8, 9]


def test_angles_are_those_between_models_unless_updates_are_asked_for():
    g = np.array([100.0, 0.0])
    rows = g + np.array([[0.0, 1.0], [0.0, 1.1], [0.0, 1.2], [0.0, 9.0]])
    assert kept(FlameFilter(), rows, global_model=g) == [0, 1, 2]  # the fourth model points elsewhere
    assert kept(FlameFilter("updates"), rows, global_model=g) == [0, 1, 2, 3]  # all steps point the same way


def test_a_score_is_the_distance_at_which_a_client_joins():
    scores = FlameFilter().score(None, Round(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])))
    np.testing.assert_allclose(scores.values, [0.0, 0.0, 1.0], atol=1e-12)
    assert scores.suspects.tolist() == [False, False, True]


def test_other_angles_are_an_error():
    with pytest.raises(InputError, match="must be one of 'models', 'updates'"):
        FlameFilter("gradients")
