from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flanders.linalg.neighbours import are_nearest, bulyan_rows, krum_scores, multi_krum_rows
from flanders.linalg.products import squared_distances


def line(*points: float) -> np.ndarray:
    return squared_distances(np.array(points)[:, None])


def nearest(distances: np.ndarray, count: int) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in are_nearest(distances, count)]


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 14))
def test_a_krum_score_sums_the_nearest_others(seed, m, b):
    distances = squared_distances(np.random.default_rng(seed).normal(size=(m, 3)))
    expected = []
    for i in range(m):
        others = sorted(np.delete(distances[i], i))
        expected.append(sum(others[: max(1, m - b - 2)]) if others else np.inf)
    np.testing.assert_allclose(krum_scores(distances, b), expected)


def test_krum_scores_by_hand() -> None:
    # 0, 1, 3, 7, 20 with b = 1: the two nearest each.
    assert np.allclose(krum_scores(line(0, 1, 3, 7, 20), 1), [1 + 9, 1 + 4, 4 + 9, 16 + 36, 169 + 289])


def test_copies_are_neighbours_at_no_distance() -> None:
    assert np.array_equal(krum_scores(line(5, 5, 5, 9, 9), 1), [0, 0, 0, 16, 16])


def test_the_lowest_scores_are_chosen_in_the_order_of_their_rows() -> None:
    assert multi_krum_rows(line(20, 3, 7, 1, 0), 1, 3).tolist() == [1, 3, 4]
    assert multi_krum_rows(line(20, 3, 7, 1, 0), 1, 1).tolist() == [3]
    assert multi_krum_rows(line(2, 2, 2), 0, 2).tolist() == [0, 1]  # a tie falls to earlier rows


@given(st.integers(0, 2**32), st.integers(3, 10), st.integers(0, 2))
def test_bulyan_picks_the_krum_winner_of_those_left_again_and_again(seed, m, b):
    distances = squared_distances(np.random.default_rng(seed).normal(size=(m, 3)))
    left, picked = list(range(m)), []
    for _ in range(m - 1):
        winner = left[int(multi_krum_rows(distances[np.ix_(left, left)], b, 1)[0])]
        picked.append(winner)
        left.remove(winner)
        assert bulyan_rows(distances, b, len(picked)).tolist() == sorted(picked)


def test_a_row_is_its_own_first_neighbour_even_among_copies() -> None:
    assert nearest(line(4, 4, 4, 0), 2) == [[0, 1], [0, 1], [0, 2], [0, 3]]
    assert nearest(line(0, 1, 3), 2) == [[0, 1], [0, 1], [1, 2]]
    assert nearest(line(0, 1, 3), 3) == [[0, 1, 2]] * 3


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_the_nearest_rows_are_the_first_of_a_stable_sort(seed, m, count, tied):
    points = np.random.default_rng(seed).normal(size=(m, 3))
    distances = squared_distances(np.round(points) if tied else points)
    itself = distances - np.diag(np.full(m, np.inf))
    first = np.argsort(itself, axis=1, kind="stable")[:, : min(count, m)]
    assert nearest(distances, min(count, m)) == np.sort(first, axis=1).tolist()
