from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flanders.aggregators import FedAvg, MeanAroundMedian, Median, TrimmedMean
from flanders.checks import InputError
from flanders.linalg.columns import means_around_median
from flanders.round import Round

matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 12), st.integers(1, 6)),
    elements=st.floats(-100, 100) | st.sampled_from([0.0, 1.0, 2.0]),
)


@given(matrices)
def test_the_median_is_numpys(rows):
    np.testing.assert_allclose(Median()(rows), np.median(rows, axis=0), atol=1e-12)


@given(matrices, st.data())
def test_the_trimmed_mean_is_the_mean_of_the_sorted_middle(rows, data):
    m = len(rows)
    trim = data.draw(st.integers(0, (m - 1) // 2))
    np.testing.assert_allclose(
        TrimmedMean(trim=trim)(rows), np.sort(rows, axis=0)[trim : m - trim].mean(axis=0), atol=1e-9
    )


@given(matrices, st.data())
def test_the_mean_around_the_median_averages_the_nearest_values(rows, data):
    m = len(rows)
    b = data.draw(st.integers(0, (m - 1) // 2))
    expected = []
    for column in rows.T:
        middle = np.median(column)
        nearest_first = sorted(column, key=lambda x: (abs(x - middle), x))
        expected.append(np.mean(nearest_first[: m - b]))
    # Values 1e-14 apart in distance may be taken in either order: allow for that much.
    ties = np.abs(np.abs(rows - np.median(rows, axis=0))[:, None] - np.abs(rows - np.median(rows, axis=0))[None])
    if not np.any((ties > 0) & (ties < 1e-9)):
        np.testing.assert_allclose(MeanAroundMedian(num_malicious=b)(rows), expected, atol=1e-9)


def test_an_even_median_is_halfway_between_the_two_in_the_middle() -> None:
    rows = np.array([[1.0, 1e300], [4.0, 1.5e308], [2.0, 1.7e308], [900.0, 0.0]])
    median = Median().aggregate(Round(rows), np.random.default_rng(0))
    assert np.array_equal(median, [3.0, 0.5e300 + 0.75e308])  # and their sum does not overflow


def test_a_fraction_to_trim_is_a_share_of_the_round_rounded_down() -> None:
    rows = np.array([[0.0], [1.0], [2.0], [4.0], [8.0], [16.0], [32.0]])
    assert TrimmedMean(trim=0.3)(rows)[0] == pytest.approx((4 + 2 + 8) / 3)  # 2.1 of 7 a side
    assert TrimmedMean(trim=0.1)(rows)[0] == pytest.approx(9.0)  # 0.7: none
    many = np.arange(100.0)[:, None] ** 2
    assert TrimmedMean(trim=0.29)(many) == TrimmedMean(trim=29)(many)  # though 0.29 * 100 is 28.999999999999996


def test_a_tie_around_the_median_goes_to_the_lower_value() -> None:
    assert MeanAroundMedian(num_malicious=1)(np.array([[0.0], [5.0], [10.0]])) == [2.5]


def test_the_weighted_median_halves_the_weight() -> None:
    rows = np.array([[1.0], [2.0], [3.0], [10.0]])
    assert Median(weighted=True)(rows, [1, 1, 1, 4]) == [10.0]  # 3 below, 4 at 10
    assert Median(weighted=True)(rows, [1, 2, 1, 2]) == [2.5]  # 3 on either side of 2 | 3
    assert Median(weighted=True)(rows, [5, 1, 1, 1]) == [1.0]
    assert Median(weighted=True)(rows, [2, 2, 0, 4]) == [6.0]  # halfway between 2 and 10: the 3 has no weight


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_example_between_two_large_clients_is_the_weighted_median(dtype) -> None:
    rows = np.array([[0.0], [1.0], [50.0]], dtype=dtype)
    assert Median(weighted=True)(rows, [10_000_000, 1, 10_000_000]) == [1.0]


def test_the_weighted_trimmed_mean_cuts_weight_and_keeps_the_rest_of_a_client_on_the_border() -> None:
    rows = np.array([[0.0], [1.0], [2.0], [100.0]])
    # A quarter of the weight of 8 a side is 2: off go 0 (1) and half of 1 (2), and all of 100 (2).
    assert TrimmedMean(trim=1, weighted=True)(rows, [1, 2, 3, 2])[0] == pytest.approx((1 * 1 + 3 * 2) / 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(st.integers(0, 2**32))
def test_a_huge_value_whose_weight_is_just_cut_does_not_get_in_by_rounding(dtype, seed) -> None:
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.normal(size=(8, 1)), [[1e30], [-1e30]]]).astype(dtype)
    weights = rng.uniform(0.1, 1.0, size=10)
    weights[8:] = weights[:8].sum() / 8  # a tenth of the total each
    order = rng.permutation(10)
    model = TrimmedMean(trim=1, weighted=True)(rows[order], weights[order])
    assert np.abs(model - np.average(rows[:8], axis=0, weights=weights[:8])) < 1e-5


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_trimming_everyone_is_an_error_that_says_how_far_to_go(m) -> None:
    rows, most = np.ones((m, 2)), (m - 1) // 2
    for aggregator, parameter in (
        (TrimmedMean(trim=2), "trim"),
        (MeanAroundMedian(num_malicious=2), "num_malicious"),
    ):
        with pytest.raises(InputError) as caught:
            aggregator(rows)
        assert f"{parameter}=2) needs more than 4 updates, got {m}" in str(caught.value)
        assert f"Lower `{parameter}` to at most {most}" in str(caught.value)
        assert np.array_equal(type(aggregator)(most)(rows), np.ones(2))  # the advice works


def second_half_of_bulyan(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return means_around_median(rows, 20, np.arange(20, 80))


@pytest.mark.parametrize(
    ("aggregator", "m", "share"),
    [
        (FedAvg(), 100, 0.1),
        (Median(), 100, 0.1),
        (Median(), 101, 0.1),  # an odd one is a value out of the sorted block, which must not hold on to it
        (TrimmedMean(), 100, 0.1),
        (MeanAroundMedian(), 100, 0.1),
        (Median(weighted=True), 100, 0.4),
        pytest.param(second_half_of_bulyan, 100, 0.1, id="Bulyan, of 60 rows"),
    ],
    ids=str,
)
def test_extra_memory_is_a_fraction_of_the_matrix(aggregator, m, share) -> None:
    rows = np.random.default_rng(0).random((m, 200_000), dtype=np.float32)
    weights = 1.0 + np.arange(m) % 3
    aggregator(rows[:, :10], weights)  # what is imported and cached on the first call does not count
    tracemalloc.start()
    try:
        aggregator(rows, weights)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < share * rows.nbytes


def test_a_numpy_integer_is_a_number_of_clients():
    rows = np.array([[1.0], [2.0], [900.0]])
    assert TrimmedMean(trim=np.int64(1))(rows) == TrimmedMean(trim=1)(rows)
