"""The paper's hypergeometric count of malicious clients, against SciPy and against draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from flanders import InputError
from flanders.studies.impact import (
    chance_of_at_least,
    chance_of_exactly,
    chance_of_majority,
    chance_over_rounds,
    expected_malicious,
)

PAPER = {"clients": 100, "malicious": 5, "selected": 20}


def test_the_papers_example_is_about_two_in_three():
    assert chance_of_at_least(1, **PAPER) == pytest.approx(0.6807, abs=1e-4)
    assert chance_of_at_least(1, **PAPER) == pytest.approx(1 - chance_of_exactly(0, **PAPER))


def test_a_case_small_enough_to_count_by_hand():
    # Of the 10 pairs of {a, b, c, d, e}, with d and e malicious, 3 have none, 6 one, 1 two.
    small = {"clients": 5, "malicious": 2, "selected": 2}
    assert [chance_of_exactly(x, **small) for x in range(3)] == pytest.approx([0.3, 0.6, 0.1])
    assert chance_of_majority(**small) == pytest.approx(0.1)
    assert chance_over_rounds(1, 2, **small) == pytest.approx(1 - 0.3**2)


@pytest.mark.parametrize(("k", "b", "m"), [(100, 5, 20), (30, 24, 30), (50, 0, 7), (12, 12, 5), (40, 13, 1)])
def test_probabilities_are_scipys_and_sum_to_one(k, b, m):
    setting = {"clients": k, "malicious": b, "selected": m}
    found = [chance_of_exactly(x, **setting) for x in range(m + 1)]
    np.testing.assert_allclose(found, hypergeom(k, b, m).pmf(np.arange(m + 1)), atol=1e-12)
    assert sum(found) == pytest.approx(1)
    assert chance_of_at_least(0, **setting) == 1
    assert chance_of_at_least(m + 1, **setting) == pytest.approx(0)
    assert expected_malicious(**setting) == pytest.approx(np.dot(found, np.arange(m + 1)))


def test_draws_of_clients_agree(rng):
    bad = rng.choice(60, 18, replace=False)
    counts = np.array([np.isin(rng.choice(60, 10, replace=False), bad).sum() for _ in range(20_000)])
    setting = {"clients": 60, "malicious": 18, "selected": 10}
    for x in range(8):
        assert np.mean(counts == x) == pytest.approx(chance_of_exactly(x, **setting), abs=0.012)
        assert np.mean(counts >= x) == pytest.approx(chance_of_at_least(x, **setting), abs=0.012)
    assert np.mean(counts > 5) == pytest.approx(chance_of_majority(**setting), abs=0.012)
    ever = np.mean((counts.reshape(-1, 4) >= 5).any(axis=1))
    assert ever == pytest.approx(chance_over_rounds(5, 4, **setting), abs=0.03)


@pytest.mark.parametrize(
    "wrong", [{"clients": 0}, {"malicious": 101}, {"selected": 0}, {"selected": 101}, {"malicious": -1}]
)
def test_impossible_federations_are_errors(wrong):
    with pytest.raises(InputError, match="impact must be a whole number"):
        chance_of_at_least(1, **{**PAPER, **wrong})
    with pytest.raises(InputError):
        chance_of_exactly(-1, **PAPER)
