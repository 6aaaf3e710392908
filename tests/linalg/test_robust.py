"""Tail probabilities and false discovery rates."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.linalg.robust import local_false_discovery_rate, t_limit, t_tail


def test_honest_p_values_give_low_probabilities_and_in_a_mixture_the_filter_is_not_too_sure(rng):
    honest = rng.uniform(size=2000)
    assert (1 - local_false_discovery_rate(honest)).mean() < 0.1
    truth = rng.uniform(size=4000) < 0.3
    p = np.where(truth, rng.beta(0.15, 8, size=4000), rng.uniform(size=4000))
    chance = 1 - local_false_discovery_rate(p)
    for low, high in ((0.0, 0.2), (0.2, 0.6), (0.6, 0.9), (0.9, 1.01)):
        inside = (chance >= low) & (chance < high)
        if inside.sum() > 50:
            assert truth[inside].mean() > chance[inside].mean() - 0.1  # never surer than it may be
    order = np.argsort(p)
    assert np.all(np.diff(chance[order]) <= 1e-12)


def test_the_tail_is_that_of_student_s_t():
    x = np.array([-3.0, 0.0, 2.0150483733330233, 20.0, 1e6])  # the third: the published 95% quantile
    expected = [0.9849503760512687, 0.5, 0.05, 2.887758186612087e-06, 9.490167245460681e-30]
    np.testing.assert_allclose(t_tail(x), expected, rtol=1e-6)
    assert t_limit(0.05) == pytest.approx(2.0150483733330233)
    assert t_tail(np.array([t_limit(1e-20)]))[0] == pytest.approx(1e-20)
