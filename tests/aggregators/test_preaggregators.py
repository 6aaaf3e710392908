from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import Bucketing, FedAvg, Nnm, NormClipping
from flanders.checks import InputError
from flanders.round import Round


def test_nearest_neighbour_mixing_by_hand() -> None:
    # m - b = 3: 0 with 1 and 3; 1 with 0 and 3; 3 with 1 and 0; 50 with 3 and 1.
    mixed = Nnm(num_malicious=1)(np.array([[0.0], [1.0], [3.0], [50.0]]))
    np.testing.assert_allclose(mixed, [[4 / 3], [4 / 3], [4 / 3], [18.0]])


def test_mixing_a_model_with_itself_alone_changes_nothing() -> None:
    assert np.array_equal(Nnm(num_malicious=0)(np.array([[3.0, 4.0]])), [[3.0, 4.0]])


def test_duplicates_do_not_crowd_a_model_out_of_its_own_neighbourhood() -> None:
    rows = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [9.0, 9.0]])
    mixed = Nnm(num_malicious=2)(rows)
    np.testing.assert_allclose(mixed[4], (rows[4] + 2 * rows[0]) / 3)


@given(st.permutations(range(3)))
def test_a_tie_between_neighbours_falls_to_the_lower_id_whoever_came_first(order) -> None:
    rows = np.array([[0.0], [3.0], [6.0]])  # 3 is as far from 0 as from 6
    mixed = Nnm(num_malicious=1).prepare(Round(rows[list(order)], tuple(order)), np.random.default_rng(0))
    assert dict(zip(mixed.clients, mixed.updates[:, 0], strict=True)) == {0: 1.5, 1: 1.5, 2: 4.5}


def test_mixing_keeps_clients_and_weights() -> None:
    round_ = Round(np.eye(3), ("c", "a", "b"), [3, 1, 2])
    mixed = Nnm(num_malicious=1).prepare(round_, np.random.default_rng(0))
    assert mixed.clients == ("c", "a", "b")
    assert np.array_equal(mixed.weights, [3, 1, 2])


def test_mixing_with_half_malicious_is_an_error_that_says_how_far_to_go() -> None:
    with pytest.raises(InputError, match=r"Nnm\(num_malicious=2\) needs more than 4 updates, got 4.*at most 1"):
        Nnm(num_malicious=2)(np.ones((4, 2)))


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32))
def test_bucketing_keeps_the_weighted_mean_and_the_total_weight(m, size, seed):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, size=m).astype(float)
    weights[0] = 1.0
    round_ = Round(rng.normal(size=(m, 3)), weights=weights)
    buckets = Bucketing(size).prepare(round_, np.random.default_rng(seed))
    assert buckets.clients == tuple(range(-(-m // size)))
    assert buckets.weights.sum() == weights.sum()
    mean = FedAvg().aggregate
    np.testing.assert_allclose(mean(buckets, rng), mean(round_, rng), atol=1e-12)


def test_every_client_is_in_one_bucket_of_the_size_asked_for() -> None:
    round_ = Round(np.eye(7))
    members = Bucketing(3).prepare(round_, np.random.default_rng(0)).updates > 0
    assert members.sum(axis=1).tolist() == [3, 3, 1]
    assert np.array_equal(members.sum(axis=0), np.ones(7))


def test_a_bucket_without_any_weight_is_its_plain_mean() -> None:
    rows, weights = np.array([[1.0], [3.0], [10.0], [20.0]]), [0, 0, 0, 1]
    seen = set()
    for seed in range(20):
        prepared = Bucketing(2).prepare(Round(rows, weights=weights), np.random.default_rng(seed))
        seen |= {(float(row[0]), float(w)) for row, w in zip(prepared.updates, prepared.weights, strict=True)}
    assert seen == {(20.0, 1.0), (2.0, 0.0), (5.5, 0.0), (6.5, 0.0)}


def test_norm_clipping_by_hand() -> None:
    rows, g = np.array([[1.0, 1.0], [4.0, 5.0], [-5.0, -7.0]]), np.array([1.0, 1.0])
    # Lengths 0, 5, 10 of (0, 0), (3, 4), (-6, -8).
    clipped = NormClipping(radius=2.5)(rows, global_model=g)
    np.testing.assert_allclose(clipped, [[1.0, 1.0], [2.5, 3.0], [-0.5, -1.0]])
    np.testing.assert_allclose(NormClipping()(rows, global_model=g), [[1.0, 1.0], [4.0, 5.0], [-2.0, -3.0]])
    np.testing.assert_allclose(NormClipping(radius=0.0)(rows, global_model=g), np.tile(g, (3, 1)))


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_no_displacement_is_longer_than_the_radius_and_none_turns(seed, radius):
    rng = np.random.default_rng(seed)
    rows, g = rng.normal(size=(6, 4)) * 10.0 ** rng.integers(-3, 4, size=(6, 1)), rng.normal(size=4)
    before, after = rows - g, NormClipping(radius)(rows, global_model=g) - g
    lengths = np.linalg.norm(before, axis=1)
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), np.minimum(lengths, radius), rtol=1e-6)
    np.testing.assert_allclose(after * lengths[:, None], before * np.minimum(lengths, radius)[:, None], atol=1e-6)


def test_norm_clipping_takes_the_median_length_if_it_is_given_no_radius() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 4.0], [-24.0, -32.0]])
    np.testing.assert_allclose(NormClipping()(rows), [[0.0, 0.0], [3.0, 4.0], [-3.0, -4.0]])
