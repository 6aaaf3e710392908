"""FLDetector on cases that can be worked out."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, FLDetector, Median, Persistence, Round
from flanders.filters.fldetector import hessian_times


def test_the_hessian_estimate_satisfies_the_secant_equation_and_finds_a_quadratic(rng):
    half = rng.normal(size=(6, 6))
    hessian = half @ half.T + np.eye(6)
    steps = tuple(rng.normal(size=(6, 6)))
    changes = tuple(hessian @ s for s in steps)
    np.testing.assert_allclose(hessian_times(steps[-1], steps, changes), changes[-1], rtol=1e-6)
    np.testing.assert_array_equal(hessian_times(steps[0], (), ()), np.zeros(6))
    # The compact form equals the BFGS recursion, written out.
    sigma = changes[-1] @ steps[-1] / (steps[-1] @ steps[-1])
    dense = sigma * np.eye(6)
    for s, y in zip(steps, changes, strict=True):
        dense += np.outer(y, y) / (y @ s) - np.outer(dense @ s, dense @ s) / (s @ dense @ s)
    vector = rng.normal(size=6)
    np.testing.assert_allclose(hessian_times(vector, steps, changes), dense @ vector, rtol=1e-6)


def federation(rng, rounds=15, clients=12, malicious=(), d=30):
    """Gradient descent on quadratics that differ between clients; yields models and the global model."""
    curvature = np.linspace(0.2, 1.5, d)
    optimum = rng.normal(size=(clients, d)) * 0.3 + rng.normal(size=d)
    g = rng.normal(size=d) * 3
    for _ in range(rounds):
        models = g - 0.5 * curvature * (g - optimum)
        models += 1e-3 * rng.normal(size=models.shape)
        for c in malicious:
            models[c] = g + rng.normal(size=d)
        yield models, g
        honest = [c for c in range(clients) if c not in malicious]
        g = models[honest].mean(axis=0)


def test_fldetector_finds_fixed_attackers_without_being_told_how_many(rng):
    defense = Defense(FLDetector(window=10), seed=0)
    for models, g in federation(rng, malicious=(1, 4, 7)):
        outcome = defense(models, global_model=g)
    assert outcome.dropped == (1, 4, 7)


def test_fldetector_drops_nobody_when_all_are_honest(rng):
    defense = Defense(FLDetector(window=10), seed=0)
    for models, g in federation(rng):
        outcome = defense(models, global_model=g)
    assert outcome.dropped == ()


def test_fldetector_scores_by_the_first_distances_as_written(rng):
    """Second round: no curvature yet, so the prediction is the client's own last displacement."""
    filter_ = FLDetector(keep=2, window=5)
    models, globals_ = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 8))
    state = filter_.init(np.random.default_rng(0))
    first = Round(models[0], global_model=globals_[0])
    state = filter_.amend(state, first, np.arange(3), globals_[1])
    found = filter_.score(state, Round(models[1], global_model=globals_[1]))
    d = np.linalg.norm((models[1] - globals_[1]) - (models[0] - globals_[0]), axis=1)
    np.testing.assert_allclose(found.values, d / d.sum())


def test_fldetector_learns_the_curvature_from_how_the_aggregated_update_changed(rng):
    filter_ = FLDetector(keep=2)
    models, globals_ = rng.normal(size=(3, 3, 8)), rng.normal(size=(4, 8))
    state = filter_.init(np.random.default_rng(0))
    for t in (0, 1):
        round_ = Round(models[t], global_model=globals_[t])
        state = filter_.amend(state, round_, np.arange(3), globals_[t + 1])
    found = filter_.score(state, Round(models[2], global_model=globals_[2])).evidence
    step, newest = np.diff(globals_[:3], axis=0)
    predicted = models[1] - globals_[1] + hessian_times(newest, (step,), (newest - step,))
    d = np.linalg.norm(models[2] - globals_[2] - predicted, axis=1)
    np.testing.assert_allclose(found, d / d.sum())


def test_fldetector_gives_a_newcomer_the_middle_score(rng):
    filter_ = FLDetector(keep=2)
    state = filter_.amend(filter_.init(), Round(rng.normal(size=(3, 8))), np.arange(3), np.zeros(8))
    values = filter_.score(state, Round(rng.normal(size=(4, 8)))).values
    assert values[3] == np.median(values[:3]) > 0


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e149), (np.float32, 1e25)])
def test_fldetectors_scores_stay_finite_where_the_prediction_overflows(rng, dtype, size):
    base, defense = rng.normal(size=(12, 20)), Defense(FLDetector(), Median(), seed=1)
    for _ in range(5):
        models = (base + 0.1 * rng.normal(size=base.shape)).astype(dtype)
        models[3] = size
        outcome = defense(models)
    assert np.all(np.isfinite(outcome.scores.values))


def test_fldetector_counts_a_perfectly_predicted_round_as_equal_shares(rng):
    models, filter_ = rng.normal(size=(4, 5)), FLDetector()
    state = filter_.init(np.random.default_rng(0))
    for _ in range(2):
        round_ = Round(models)
        state = filter_.amend(state, round_, np.arange(4), np.zeros(5), filter_.score(state, round_))
    assert [share.tolist() for share in state.distances.values()] == [[0.25]] * 4


@pytest.mark.parametrize("filter_", [FLDetector(keep=0.8), Persistence(keep=0.8)], ids=repr)
def test_the_memory_of_clients_that_never_come_back_is_bounded(filter_, rng):
    """Five clients stay, and fifteen come under new ids in each of 60 rounds."""
    defense = Defense(filter_, seed=0)
    for number in range(60):
        clients = [*range(5), *(100 * (number + 1) + i for i in range(15))]
        defense(rng.normal(size=(20, 4)), clients, global_model=np.zeros(4))
    memories = [value for value in vars(defense.state).values() if isinstance(value, dict)]
    assert all(len(memory) <= 200 for memory in memories)
    assert all(client in memories[0] for client in range(5))
