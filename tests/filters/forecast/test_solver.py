"""A fit that is kept for several rounds, against the matrices written out."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Als, Defense, Flanders, InputError, Round, Sample, Sketch, load_state, save_state


@pytest.fixture
def rounds(rng):
    base = rng.normal(size=(6, 40)) + 3
    return [base * 0.9**t + 0.1 * rng.normal(size=base.shape) for t in range(7)]


def scores_of(filter_, rounds, globals_=None, clients=None):
    """Let every round pass, whatever its scores: the same history for every filter."""
    state, found = filter_.init(np.random.default_rng(3)), []
    for t, updates in enumerate(rounds):
        g = None if globals_ is None else globals_[t]
        round_ = Round(updates, () if clients is None else clients[t], None, g)
        scores = filter_.score(state, round_)
        state = filter_.amend(state, round_, np.arange(len(updates)), updates.mean(axis=0), scores)
        found.append(None if scores is None else scores.values)
    return found


def test_between_fits_the_last_a_forecasts_from_the_newest_models(rounds):
    found = scores_of(Flanders(keep=6, solver=Als(refit_every=3)), rounds)
    assert found[0] is None
    np.testing.assert_allclose(found[1], ((rounds[1] - rounds[0]) ** 2).sum(axis=1), rtol=1e-9)
    fitted_at = {2: 2, 3: 2, 4: 2, 5: 5, 6: 5}
    for t, at in fitted_at.items():
        a = rounds[at - 1].T @ np.linalg.pinv(rounds[at - 2].T)  # with independent columns B stays the identity
        forecast = (a @ rounds[t - 1].T).T
        np.testing.assert_allclose(found[t], ((rounds[t] - forecast) ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"center": True}, {"window": 4}, {"window": 4, "order": 2}, {"look": Sample(25)}]
)
@pytest.mark.parametrize("distance", ["squared-l2", "l2", "l1", "cosine", 0.5])
def test_in_the_round_of_a_fit_scores_are_those_of_fitting_every_round(rounds, options, distance):
    globals_ = [r.mean(axis=0) + 0.2 for r in rounds]
    every = scores_of(Flanders(keep=6, distance=distance, **options), rounds, globals_)
    seldom = scores_of(Flanders(keep=6, distance=distance, solver=Als(refit_every=2), **options), rounds, globals_)
    first = options.get("window", 2)
    for t in [*range(1, first + 1), *range(first + 2, 7, 2)]:
        np.testing.assert_allclose(seldom[t], every[t], rtol=1e-5, err_msg=f"round {t + 1}")
    if not options:
        assert not np.allclose(seldom[first + 1], every[first + 1], rtol=1e-3)


def test_who_is_not_in_the_fit_is_scored_by_the_distance_to_the_global_model(rounds):
    globals_ = [r.mean(axis=0) for r in rounds]
    clients = [tuple(range(6))] * 3 + [(0, 1, 2, 3, 4, 9)] * 2
    found = scores_of(Flanders(keep=6, solver=Als(refit_every=5)), rounds[:5], globals_, clients)
    for t in (3, 4):
        assert found[t][5] == pytest.approx(((rounds[t][5] - globals_[t]) ** 2).sum())


def test_a_kept_fit_survives_saving_and_loading(rounds, tmp_path):
    filter_ = Flanders(keep=4, solver=Als(refit_every=4))
    whole, halved = Defense(filter_, seed=1), Defense(filter_, seed=1)
    for t, updates in enumerate(rounds):
        if t == 4:
            assert halved.state.fit.age == 2
            save_state(tmp_path / "state.npz", halved.state)
            halved.state = load_state(tmp_path / "state.npz")
        np.testing.assert_array_equal(whole(updates).model, halved(updates).model)


def test_amending_without_the_scores_keeps_the_same_fit(rounds):
    filter_ = Flanders(keep=6, solver=Als(refit_every=3))
    state = filter_.init(np.random.default_rng(0))
    other = state
    for updates in rounds[:4]:
        round_ = Round(updates)
        scores = filter_.score(state, round_)
        state = filter_.amend(state, round_, np.arange(6), updates.mean(axis=0), scores)
        other = filter_.amend(other, round_, np.arange(6), updates.mean(axis=0))
    assert state.fit.age == other.fit.age == 2
    np.testing.assert_array_equal(state.fit.inner[0], other.fit.inner[0])


@pytest.mark.parametrize("look", [Sketch(64), Sample(20, redraw=True)])
def test_a_fit_is_not_kept_for_parameters_that_change_every_round(look):
    with pytest.raises(InputError, match=r"refit_every=2.*look at the same parameters"):
        Flanders(keep=3, solver=Als(refit_every=2), look=look)


@pytest.mark.parametrize("refit_every", [1, 2])
def test_the_cosine_of_huge_models_is_a_cosine(rng, refit_every):
    models = 1e140 * rng.normal(size=(6, 30))
    defense = Defense(Flanders(keep=5, distance="cosine", solver=Als(refit_every=refit_every)), seed=0)
    defense(models, global_model=np.zeros(30))
    models[2] = -models[2]
    values = defense(models, global_model=np.zeros(30)).scores.values
    np.testing.assert_allclose(values, np.where(np.arange(6) == 2, 2.0, 0.0), atol=1e-12)


@pytest.mark.parametrize("distance", [0.01, 300.0])
@pytest.mark.parametrize("refit_every", [1, 2])
def test_extreme_powers_tell_the_farthest_client_too(rng, distance, refit_every):
    models = rng.normal(size=(6, 20_000))
    defense = Defense(Flanders(keep=5, distance=distance, solver=Als(refit_every=refit_every)), seed=0)
    defense(models)
    moved = models + 1e-3 * rng.normal(size=models.shape)
    moved[2] += 0.1 * rng.normal(size=20_000)
    outcome = defense(moved)
    assert outcome.dropped == (2,)
    assert np.all(np.isfinite(outcome.scores.values))
    assert np.unique(outcome.scores.values).size == 6
