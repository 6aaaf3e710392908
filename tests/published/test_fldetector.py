from __future__ import annotations

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.filters import FLDetector
from flanders.published.fldetector import FLDetectorLagged
from flanders.round import Round


def last_scores(filter_, bad_before, bad_now):
    """Score the sixth of six rounds, in which other clients are malicious than in the rounds before."""
    rng = np.random.default_rng(0)
    state, model = filter_.init(np.random.default_rng(1)), np.zeros(20)
    for t in range(6):
        updates = model + 0.1 * rng.normal(size=(10, 20))
        updates[bad_now if t == 5 else bad_before] += 50 * rng.normal(size=20)
        round_ = Round(updates, global_model=model)
        scores = filter_.score(state, round_)
        if t < 5:
            state = filter_.amend(state, round_, np.arange(10), model, scores)
    return scores.values


def test_it_judges_by_earlier_rounds_alone():
    values = last_scores(FLDetectorLagged(keep=8), [0, 1], [8, 9])
    assert set(np.argsort(values)[-2:]) == {0, 1}
    again = last_scores(FLDetectorLagged(keep=8), [0, 1], [4, 5])
    np.testing.assert_array_equal(values, again)


def test_fldetector_itself_looks_at_the_round_it_judges():
    window = FLDetector(keep=8, window=1)
    assert set(np.argsort(last_scores(window, [0, 1], [8, 9]))[-4:]) >= {8, 9}


def test_it_must_be_told_how_many_to_keep():
    with pytest.raises(InputError, match="keep"):
        FLDetectorLagged(keep=None)
