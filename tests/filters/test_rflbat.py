from __future__ import annotations

import numpy as np

from flanders import Round
from flanders.filters import Rflbat


def kept(rows):
    return Rflbat().select(Rflbat().score(None, Round(rows))).tolist()


def test_a_uniform_group_is_dropped_for_a_diverse_one():
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(14, 60))
    colluding = 3 * np.ones((6, 60)) + 0.1 * rng.normal(size=(6, 60))
    found = kept(np.concatenate([colluding, honest]))
    assert found
    assert not set(found) & set(range(6))


def test_an_update_that_is_far_away_is_dropped_in_the_first_step():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(15, 60))
    rows[0] += 1000
    scores = Rflbat().score(None, Round(rows))
    assert scores.values[0] == 2
    assert (scores.values[1:] < 2).all()
