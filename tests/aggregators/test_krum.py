from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import Bulyan, Krum, MultiKrum
from flanders.checks import InputError
from flanders.round import Round

LINE = np.array([[0.0], [1.0], [3.0], [3.5], [5.0], [6.0], [100.0]])
"""Squared distances to the m - b - 2 = 4 nearest of seven with b = 1:
0: 1 + 9 + 12.25 + 25 = 47.25;  1: 1 + 4 + 6.25 + 16 = 27.25;  3: .25 + 4 + 4 + 9 = 17.25;
3.5: .25 + 2.25 + 6.25 + 6.25 = 15;  5: 1 + 2.25 + 4 + 16 = 23.25;  6: 1 + 6.25 + 9 + 25 = 41.25."""


def test_krum_takes_the_model_with_the_smallest_sum_by_hand() -> None:
    assert Krum(num_malicious=1)(LINE) == [3.5]


def test_multi_krum_averages_the_best_by_hand() -> None:
    assert MultiKrum(num_malicious=1, keep=3)(LINE) == pytest.approx((3.5 + 3 + 5) / 3)
    assert MultiKrum(num_malicious=1)(LINE) == pytest.approx((0 + 1 + 3 + 3.5 + 5 + 6) / 6)  # m - b of them
    weighted = MultiKrum(num_malicious=1, keep=3, weighted=True)
    assert weighted(LINE, [9, 9, 2, 1, 1, 9, 9]) == pytest.approx((2 * 3 + 3.5 + 5) / 4)


def test_bulyan_by_hand() -> None:
    # m - 2b = 5 of the seven, one by one, each by the scores of those still there:
    #   3.5 (15, above). Of the other six, by 3 nearest: 0: 35, 1: 21, 3: 4 + 4 + 9 = 17, 5: 21, 6: 35 -> 3.
    #   Of 0 1 5 6 100, by 2 nearest: 0: 26, 1: 17, 5: 17, 6: 26 -> 1, the lower id of the tie.
    #   Of 0 5 6 100, by 1: 0: 25, 5: 1, 6: 1 -> 5. Of 0 6 100, by 1 (at least): 0: 36, 6: 36 -> 0.
    # Median of 0 1 3 3.5 5 is 3; the m - 4b = 3 nearest are 3, 3.5 and, at distance 2 each, the lower of 1 and 5.
    assert Bulyan(num_malicious=1)(LINE) == pytest.approx((1 + 3 + 3.5) / 3)


@given(st.integers(0, 2**32))
def test_krum_returns_one_of_the_models_to_the_bit(seed):
    rows = np.random.default_rng(seed).normal(size=(9, 4)).astype(np.float32)
    assert Krum()(rows).tobytes() in {row.tobytes() for row in rows}


def test_a_chosen_client_without_examples_is_still_a_model() -> None:
    weights = [1, 1, 1, 0, 1, 1, 1]
    assert Krum(num_malicious=1)(LINE, weights) == [3.5]
    assert MultiKrum(num_malicious=1, keep=1, weighted=True)(LINE, weights) == [3.5]


def test_bulyan_bounds_each_parameter_where_multi_krum_does_not() -> None:
    """One coordinate far off hides among a thousand: the weakness that Bulyan was made for."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(11, 1000))
    rows[:2] = rows[2:].mean(axis=0)
    rows[:2, 0] = 20.0
    assert MultiKrum(num_malicious=2)(rows)[0] > 3
    assert Bulyan(num_malicious=2)(rows)[0] < rows[2:, 0].max()


@pytest.mark.parametrize(
    ("aggregator", "needs", "most"),
    [
        (Krum(num_malicious=3), "more than 2b + 2 = 8 updates, got 8", 2),
        (MultiKrum(num_malicious=3), "more than 2b + 2 = 8 updates, got 8", 2),
        (Bulyan(num_malicious=3), "at least 4b + 3 = 15 updates, got 8", 1),
    ],
)
def test_too_few_clients_is_an_error_that_says_how_far_to_go(aggregator, needs, most) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 2))
    with pytest.raises(InputError) as caught:
        aggregator(rows)
    name = type(aggregator).__name__
    assert str(caught.value).startswith(f"{name}(num_malicious=3) needs {needs}.")
    assert f"Lower `num_malicious` to at most {most}" in str(caught.value)
    assert type(aggregator)(num_malicious=most)(rows) is not None  # the advice works
    with pytest.raises(InputError):
        type(aggregator)(num_malicious=most + 1)(rows)


@pytest.mark.parametrize("m", range(1, 40))
def test_the_family_accepts_exactly_the_rounds_its_proofs_cover(m) -> None:
    rows = np.random.default_rng(m).normal(size=(m, 2))
    for b in range(0, 12):
        for aggregator, holds in (
            (Krum(b), m > 2 * b + 2),
            (MultiKrum(b), m > 2 * b + 2),
            (Bulyan(b), m >= 4 * b + 3),
        ):
            if holds:
                assert aggregator(rows).shape == (2,)
            else:
                with pytest.raises(InputError):
                    aggregator(rows)


def test_keeping_more_models_than_there_are_is_an_error() -> None:
    with pytest.raises(InputError, match=r"MultiKrum\(keep=9\) needs at least 9 updates, got 7"):
        MultiKrum(num_malicious=1, keep=9)(LINE)


def test_ids_may_be_ints_and_strings_mixed() -> None:
    round_ = Round(LINE, (3, "b", 1, "a", "10", 2, "9"))
    assert Krum(num_malicious=1).aggregate(round_, np.random.default_rng(0)) == [3.5]
