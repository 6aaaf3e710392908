"""Rules and attacks that another library has under a different name, or computes in another way.

`docs/conformance.md` has the table of all comparisons. The plain ones are in `test_byzfl_attacks.py` and in
`tests/aggregators`: `test_against_byzfl.py` and `test_against_flower.py`.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

from flanders import Defense
from flanders.aggregators import Caf, FedAvg, MinimumSpread, Nnm, NormClipping
from flanders.attacks import Gauss, View
from flanders.filters import KeepAll
from peers import byzfl, flower, flower_replies

rules, attacks = byzfl("aggregators.aggregators"), byzfl("attacks.attacks")


def with_outliers(seed: int, m: int = 11, b: int = 2, d: int = 20) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(m, d))
    rows[:b] += 30.0
    return rows


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("idx", [0, 4])
def test_byzfls_monna_is_one_row_of_nearest_neighbour_mixing(seed, idx):
    rows = np.random.default_rng(seed).normal(size=(9, 12))
    np.testing.assert_allclose(rules.MoNNA(f=3, idx=idx)(rows), Nnm(num_malicious=3)(rows)[idx], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_byzfls_smea_leaves_out_the_same_clear_outliers(seed):
    rows = with_outliers(seed)
    np.random.seed(seed)  # noqa: NPY002 - theirs draws its first vector from the global generator
    np.testing.assert_allclose(rules.SMEA(f=2)(rows), rows[2:].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(MinimumSpread(num_malicious=2)(rows), rows[2:].mean(axis=0), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_byzfls_caf_takes_most_weight_from_the_same_clear_outliers(seed):
    rows = with_outliers(seed)
    np.random.seed(seed)  # noqa: NPY002
    theirs, ours, honest = rules.CAF(f=2)(rows), Caf(num_malicious=2)(rows), rows[2:].mean(axis=0)
    # The mean of all rows is 24 away from the honest mean.
    assert np.linalg.norm(ours - honest) < 1
    assert np.linalg.norm(theirs - honest) < 1


def test_byzfls_gaussian_is_the_noise_that_ours_adds_to_the_clients_own_model():
    view = View(np.full((4, 50_000), 2.0), np.zeros(50_000), 9, benign=np.ones((5, 50_000)))
    ours = Gauss(sigma=3.0)(view, np.random.default_rng(0)) - view.own
    np.random.seed(0)  # noqa: NPY002
    theirs = attacks.Gaussian(mu=0.0, sigma=3.0)(view.benign)
    for noise in (*ours, theirs):
        assert abs(noise.mean()) < 0.05
        assert noise.std() == pytest.approx(3.0, rel=0.02)


def test_byzfls_infinite_vectors_never_reach_an_aggregator_of_ours(caplog):
    caplog.set_level(logging.ERROR, logger="flanders")
    rows = np.random.default_rng(0).normal(size=(5, 6))
    rows[0] = attacks.Inf()(rows)
    outcome = Defense(KeepAll(), FedAvg())(rows)
    assert outcome.dropped == (0,)
    np.testing.assert_allclose(outcome.model, rows[1:].mean(axis=0))


@pytest.mark.parametrize("radius", [0.5, 100.0])
def test_flowers_clipping_for_privacy_without_noise_is_norm_bounding(radius, caplog):
    caplog.set_level(logging.ERROR, logger="flwr")
    rng = np.random.default_rng(0)
    rows, start = rng.normal(size=(6, 10)), rng.normal(size=10)
    strategy = flower().DifferentialPrivacyServerSideFixedClipping(flower().FedAvg(), 0.0, radius, 6)
    strategy.current_arrays = flower("app").ArrayRecord([start[:5].copy(), start[5:].copy()])
    arrays, _ = strategy.aggregate_train(1, flower_replies(rows))
    expected = (NormClipping(radius=radius) | FedAvg())(rows, global_model=start)
    np.testing.assert_allclose(np.concatenate(arrays.to_numpy_ndarrays()), expected, atol=1e-12)


def test_nvflares_weighted_average_is_ours():
    rng = np.random.default_rng(0)
    rows, weights = rng.normal(size=(7, 10)), rng.integers(1, 50, size=7).astype(float)
    helper = WeightedAggregationHelper()
    for client, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        helper.add({"w": row}, weight, f"site-{client}", 1)
    np.testing.assert_allclose(helper.get_result()["w"], FedAvg()(rows, weights), atol=1e-12)
