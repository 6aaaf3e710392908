from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import ClippingAndNoise, Crfl, Flame, NormClipping
from flanders.round import Round

ROWS = np.random.default_rng(0).normal(size=(9, 40_000))


def test_without_noise_it_is_norm_clipping_in_front_of_the_average():
    g = np.ones(ROWS.shape[1])
    expected = NormClipping()(ROWS, global_model=g).mean(axis=0)
    np.testing.assert_allclose(ClippingAndNoise(noise=0.0)(ROWS, global_model=g), expected, atol=1e-12)


@pytest.mark.parametrize("aggregator", [ClippingAndNoise(noise=0.01), Flame(noise=0.01)], ids=str)
def test_the_noise_has_the_asked_share_of_the_median_length(aggregator):
    quiet = type(aggregator)(noise=0.0)
    noise = aggregator(ROWS, rng=np.random.default_rng(1)) - quiet(ROWS)
    median = np.median(np.linalg.norm(ROWS, axis=1))
    assert abs(noise.std() / (0.01 * median) - 1) < 0.02
    assert abs(noise.mean()) < 4 * noise.std() / 200


def test_flame_averages_its_cluster_with_lengths_up_to_the_median_of_all_clients():
    rows = np.array([[2.0, 0.0], [4.0, 0.0], [6.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    # The first three are the cluster; the median of the lengths 2, 4, 6, 1, 1 is 2.
    assert Flame(noise=0.0)(rows).tolist() == [2.0, 0.0]


def test_a_boosted_minority_does_not_move_flame():
    rng = np.random.default_rng(2)
    honest = 1 + 0.1 * rng.normal(size=(7, 30))
    boosted = -50 + rng.normal(size=(3, 30))
    model = Flame(noise=0.0).aggregate(Round(np.concatenate([boosted, honest])), rng)
    assert np.abs(model - honest.mean(axis=0)).max() < 0.1


def test_crfl_clips_the_whole_model_and_adds_noise_of_the_asked_size():
    average = ROWS.mean(axis=0)
    length = np.linalg.norm(average)
    np.testing.assert_allclose(Crfl(radius=2 * length, noise=0.0)(ROWS), average, atol=1e-12)
    short = Crfl(radius=length / 4, noise=0.0)(ROWS)
    np.testing.assert_allclose(short, average / 4, atol=1e-12)
    noise = Crfl(radius=length / 4, noise=0.01)(ROWS, rng=np.random.default_rng(1)) - short
    assert abs(noise.std() / 0.01 - 1) < 0.02
