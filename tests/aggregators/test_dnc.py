from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flanders.aggregators import DnC
from flanders.checks import InputError
from flanders.linalg.spectral import DivideAndConquer, relative_to_cut
from flanders.round import Round

scores = hnp.arrays(
    np.float64,
    st.integers(1, 15),
    elements=st.floats(0, 1e300) | st.sampled_from([0.0, 5e-324, 1e-310, 1.0, 3.0]),
)


@given(scores, st.data())
def test_exactly_the_dropped_are_above_one_in_the_order_of_their_scores(values, data):
    num_dropped = data.draw(st.integers(0, values.size))
    relative = relative_to_cut(values.copy(), num_dropped)
    assert np.all(np.isfinite(relative))
    assert np.count_nonzero(relative > 1) == num_dropped
    order = np.argsort(values, kind="stable")  # a tie falls to later rows
    assert set(np.flatnonzero(relative > 1)) == set(order[values.size - num_dropped :])


def test_the_cut_lies_halfway_between_the_last_kept_and_the_first_dropped() -> None:
    assert np.array_equal(relative_to_cut(np.array([1.0, 6.0, 8.0, 2.0]), 2), [0.25, 1.5, 2.0, 0.5])
    assert np.array_equal(relative_to_cut(np.array([1.0, 4.0]), 0), [0.25, 1.0])
    assert np.array_equal(relative_to_cut(np.array([2.0, 4.0]), 2), [2.0, 4.0])


@given(st.integers(0, 2**32), st.integers(0, 5))
def test_the_scores_rank_rows_by_their_projection_on_the_top_singular_vector(seed, num_dropped):
    rows = np.random.default_rng(seed).normal(size=(8, 5)) + 100.0
    centred = rows - rows.mean(axis=0)
    projected = (centred @ np.linalg.svd(centred)[2][0]) ** 2
    found = DivideAndConquer("test", num_dropped, 1, None, 1.0).scores(Round(rows), np.random.default_rng(0))
    assert np.array_equal(np.argsort(found), np.argsort(projected))
    assert np.count_nonzero(found > 1) == num_dropped


def test_dnc_by_hand() -> None:
    # Centred on (5, 0) the spread is along the first axis; squared projections 25, 16, 9, 1, 49.
    rows = np.array([[0.0, 0.0], [1.0, 0.1], [2.0, -0.1], [4.0, 0.0], [18.0, 0.0]])
    np.testing.assert_allclose(DnC(num_malicious=1, sample=None)(rows), [7 / 4, 0.0], atol=1e-12)
    np.testing.assert_allclose(
        DnC(num_malicious=1, sample=None, weighted=True)(rows, [1, 1, 1, 2, 9]), [11 / 5, 0.0], atol=1e-12
    )
    np.testing.assert_allclose(DnC(num_malicious=0)(rows), rows.mean(axis=0), atol=1e-12)
    # Half as many again as b = 2 are dropped: 18, 0 and 1.
    model = DnC(num_malicious=2, sample=None, filtering_fraction=1.5)(rows)
    np.testing.assert_allclose(model, [3.0, -0.05], atol=1e-12)


def test_what_any_sample_finds_is_out() -> None:
    """Two attackers, each far off in half of the parameters: one test sees one, all tests both."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 400))
    rows[0, :200] += 40
    rows[1, 200:] += 40
    tests = [DivideAndConquer("test", 1, n, 20, 1.0) for n in (1, 40)]
    scores = [test.scores(Round(rows), np.random.default_rng(1)) for test in tests]
    assert [np.count_nonzero(s > 1) for s in scores] == [1, 2]
    assert set(np.flatnonzero(scores[1] > 1)) == {0, 1}


def test_if_every_row_is_out_in_some_test_the_global_model_stays() -> None:
    rows, g = np.random.default_rng(0).normal(size=(4, 300)), np.full(300, 7.0)
    model = DnC(num_malicious=3, iterations=200, sample=3)(rows, global_model=g, rng=np.random.default_rng(0))
    assert np.array_equal(model, g)
    assert not np.shares_memory(model, g)


def test_dropping_everyone_is_an_error_that_names_the_numbers() -> None:
    with pytest.raises(
        InputError, match=r"DnC\(num_malicious=2, filtering_fraction=1.5\) would drop 3 of 3 updates"
    ):
        DnC(num_malicious=2, filtering_fraction=1.5)(np.ones((3, 2)))


def test_if_nobody_who_is_left_has_weight_they_count_alike() -> None:
    rows = np.array([[1.0, 1.0], [1.2, 1.0], [0.8, 1.0], [99.0, 1.0]])
    model = DnC(num_malicious=1, sample=None, weighted=True)(rows, [0, 0, 0, 5])
    np.testing.assert_allclose(model, [1.0, 1.0])


@given(st.permutations(range(8)))
def test_of_a_tie_the_lower_client_ids_stay(ids) -> None:
    rows = np.concatenate([np.random.default_rng(0).normal(size=(3, 20)), np.full((5, 20), 3.0)])
    tests = DivideAndConquer("test", 7, 5, 6, 1.0)
    found = tests.scores(Round(rows[list(ids)], tuple(ids)), np.random.default_rng(0))
    expected = tests.scores(Round(rows), np.random.default_rng(0))
    assert np.array_equal(found > 1, (expected > 1)[list(ids)])
