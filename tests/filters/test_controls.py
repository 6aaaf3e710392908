"""The controls are the distances they say."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import DistanceToGlobal, Persistence, Round


def test_persistence_remembers_who_was_away(rng):
    control, models = Persistence(keep=2), rng.normal(size=(3, 3, 5))
    state = control.amend(control.init(), Round(models[0]), np.arange(3), None)
    state = control.amend(state, Round(models[1, :2], (0, 1)), np.arange(2), None)
    last = np.stack([models[1, 0], models[1, 1], models[0, 2]])
    values = control.score(state, Round(models[2])).values
    np.testing.assert_allclose(values, ((models[2] - last) ** 2).sum(axis=1))


def test_distance_to_global_and_persistence_are_the_distances_they_say(rng):
    models = rng.normal(size=(2, 4, 9))
    control = Persistence(keep=2)
    state = control.init()
    first = Round(models[0])
    assert control.score(state, first) is None
    state = control.amend(state, first, np.array([0, 1, 2]), None)
    scores = control.score(state, Round(models[1], global_model=models[0, 3] * 2)).values
    np.testing.assert_allclose(scores[:3], ((models[1, :3] - models[0, :3]) ** 2).sum(axis=1))
    assert scores[3] == pytest.approx(((models[1, 3] - 2 * models[0, 3]) ** 2).sum())
    g = rng.normal(size=9)
    scores = DistanceToGlobal().score(None, Round(models[0], global_model=g)).values
    np.testing.assert_allclose(scores, ((models[0] - g) ** 2).sum(axis=1))
