"""The published code's FLANDERS, against its formula written out."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, FlandersReference, InputError, Round
from flanders.published.flanders import reference_forecast


@pytest.fixture
def rounds(rng):
    base = rng.normal(size=(6, 40)) + 3
    return [base * 0.9**t + 0.1 * rng.normal(size=base.shape) for t in range(5)]


def naive_reference(tensor, start, iterations):
    """The published code's formulas on an (m, n, T) tensor, with t from 0 and so index t - 1 = -1."""
    scaled = (tensor - tensor.min()) / tensor.max()
    m, n, length = scaled.shape
    b = start
    for _ in range(iterations):
        left, right = np.zeros((m, m)), np.zeros((m, m))
        for t in range(length):
            now, before = scaled[:, :, t], scaled[:, :, t - 1]
            left += now @ b @ before.T
            right += before @ b.T @ b @ before.T
        a = left @ np.linalg.inv(right + np.eye(m))
        left, right = np.zeros((n, n)), np.zeros((n, n))
        for t in range(length):
            now, before = scaled[:, :, t], scaled[:, :, t - 1]
            left += now.T @ a @ before
            right += before.T @ a.T @ a @ before
        b = left @ np.linalg.inv(right + np.eye(n))
    return a @ tensor[:, :, -1] @ b.T


@pytest.mark.parametrize(("clients", "parameters"), [(6, 20), (12, 8), (20, 60)])
def test_the_reference_forecast_equals_a_naive_transcription(clients, parameters, rng):
    newest = rng.normal(scale=0.1, size=(clients, parameters))
    start = rng.normal(size=(parameters, parameters))
    expected = naive_reference(newest[:, :, None], start, 100)
    found = reference_forecast(newest, start, iterations=100)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_scores_are_distances_to_the_published_code_s_forecast(rounds):
    filter_ = FlandersReference(keep=4, sample=15)
    state = filter_.init(np.random.default_rng(1))
    models = [r / 10 for r in rounds]
    columns = np.random.default_rng([state.seed, 0]).integers(0, 40, size=15)
    newest = None
    for t, updates in enumerate(models[:4]):
        round_ = Round(updates, global_model=updates.mean(axis=0))
        found = filter_.score(state, round_)
        if t == 0:
            assert found is None
        else:
            start = np.random.default_rng([state.seed, 1, state.round_number]).standard_normal((15, 15))
            expected = np.linalg.norm(updates[:, columns] - reference_forecast(newest, start), axis=1)
            np.testing.assert_allclose(found.values, expected, rtol=1e-9)
        kept = np.array([0, 1, 2, 3])
        model = updates[kept].mean(axis=0)
        state = filter_.amend(state, round_, kept, model, found)
        newest = updates[:, columns].copy()
        newest[4:] = model[columns]  # the NEW global model, as the published code has it


def test_a_new_client_is_scored_by_its_distance_to_the_global_model(rounds):
    filter_ = FlandersReference(keep=4, sample=15)
    state = filter_.init(np.random.default_rng(1))
    state = filter_.amend(state, Round(rounds[0]), np.arange(6), rounds[0][0])
    g = rounds[1].mean(axis=0)
    scores = filter_.score(state, Round(rounds[1], (0, 1, 2, 3, 4, 99), global_model=g))
    columns = filter_.visible_columns(state, 40)
    assert scores.values[5] == pytest.approx(np.linalg.norm((rounds[1][5] - g)[columns]))


def test_under_a_threshold_everyone_is_kept_until_a_round_has_been_scored(rounds):
    defense = Defense(FlandersReference(threshold=0.5, sample=20), seed=0)
    assert [defense(updates).dropped for updates in rounds[:2]] == [(), ()]
    assert defense(rounds[2]).scores.probabilities is not None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "either `keep`"),
        ({"keep": 3, "threshold": 0.5}, "either `keep`"),
        ({"keep": 3, "min_honest": 0.5}, "is used only with `threshold`"),
        ({"keep": 3, "sample": 0}, "`sample` parameter of FlandersReference"),
        ({"keep": 3, "iterations": 0}, "`iterations` parameter of FlandersReference"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        FlandersReference(**parameters)


@pytest.mark.parametrize("value", [-3e38, 3e38])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("attackers", [1, 4])
def test_no_number_that_a_client_sends_ends_the_run(value, number, attackers, rng):
    """Of eight clients some send one huge number, from the first round or later on. Two are dropped a round."""
    defense, model = Defense(FlandersReference(keep=0.75, sample=20), seed=0), np.zeros(20, dtype=np.float32)
    for at in range(1, 7):
        updates = model + rng.normal(size=(8, 20)).astype(np.float32)
        if at >= number:
            updates[:attackers, 5] = value
        outcome = defense(updates)
        model = outcome.model
        assert np.isfinite(model).all()
        assert attackers > 2 or np.abs(model).max() < 100
