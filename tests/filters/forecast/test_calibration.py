"""How scores become probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.filters.forecast.calibration import Calibration, calibrate, typical_log_score


def test_the_typical_score_cannot_be_dragged_by_a_majority():
    scores = np.full(20, np.e)
    known = calibrate(Calibration(), scores, np.arange(20), 0.2)
    assert known.location == pytest.approx(1.0)
    assert typical_log_score(known, scores * 1.1, 0.2) == pytest.approx(1.0 + 0.3 * np.log(1.1))
    assert typical_log_score(known, scores * 1e6, 0.2) == pytest.approx(1.15)
    assert typical_log_score(known, scores / 1e6, 0.2) == pytest.approx(0.95)


def test_the_least_share_of_honest_clients_is_a_share_however_it_is_written():
    scores = np.exp(np.arange(11.0))
    assert typical_log_score(Calibration(), scores, 1) == pytest.approx(5.0)
