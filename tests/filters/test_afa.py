from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, Round
from flanders.filters import Afa
from flanders.filters.afa import AfaState, regularised_half


def by_hand(rows, weights, slack=2.0, step=0.5):
    """The search of the paper, one client at a time."""
    good = list(range(len(rows)))
    while True:
        average = sum(weights[i] * rows[i] for i in good) / sum(weights[i] for i in good)
        cosine = {i: rows[i] @ average / np.linalg.norm(rows[i]) / np.linalg.norm(average) for i in good}
        values = np.array(list(cosine.values()))
        median, spread = np.median(values), values.std()
        if values.mean() < median:
            bad = [i for i in good if cosine[i] < median - slack * spread]
        else:
            bad = [i for i in good if cosine[i] > median + slack * spread]
        if not bad:
            return good
        good = [i for i in good if i not in bad]
        slack += step


@pytest.mark.parametrize("seed", range(6))
def test_the_search_is_that_of_the_paper(seed):
    rng = np.random.default_rng(seed)
    rows, weights = 1 + rng.normal(size=(15, 20)), rng.integers(1, 9, size=15).astype(float)
    rows[:4] *= [[-1.0], [-1.0], [-1.0], [0.1]]
    found = Afa().score(AfaState(), Round(rows, weights=weights))
    assert np.flatnonzero(~found.suspects).tolist() == by_hand(rows, weights)
    assert found.suspects[:3].all()


def test_a_client_that_is_always_dropped_is_blocked_for_good():
    rng = np.random.default_rng(0)
    defense = Defense(Afa(), seed=0)
    for number in range(9):
        rows = 1 + 0.3 * rng.normal(size=(12, 20))
        if number < 8:
            rows[0] *= -1
        outcome = defense(rows, global_model=np.zeros(20))
        assert 0 in outcome.dropped
    assert outcome.reasons[0] == "blocked: dropped too often"  # though its last update was honest


def test_the_chance_of_a_beta_distributed_number_is_that_of_scipy():
    from scipy.stats import beta

    for a, b in [(3, 3), (3, 10), (12, 4), (1, 1)]:
        assert regularised_half(a, b) == pytest.approx(beta.cdf(0.5, a, b))
