"""FLANDERS on cases worked out by hand or by brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flanders import FILTERS, Defense, FedAvg, Flanders, InputError, Round, Sample, Sketch
from linalg.test_mar import direct_als


def direct_score(history, globals_, round_, order=1):
    """The paper's score on raw models, all clients in every round, one pair: pseudo-inverse and B = I."""
    assert order == 1
    before, last = history[-2].T, history[-1].T
    forecast = last @ np.linalg.pinv(before) @ last
    return ((round_ - forecast.T) ** 2).sum(axis=1)


def play(filter_, rounds, keep_rows=None, global_models=None, clients=None):
    """Run rounds through a filter by hand; returns the scores of each and the states after."""
    state, scores, states = filter_.init(np.random.default_rng(3)), [], []
    for t, updates in enumerate(rounds):
        g = None if global_models is None else global_models[t]
        round_ = Round(updates, () if clients is None else clients[t], None, g)
        found = filter_.score(state, round_)
        kept = np.arange(len(updates)) if keep_rows is None or keep_rows[t] is None else np.array(keep_rows[t])
        state = filter_.amend(state, round_, kept, FedAvg()(updates[kept]), found)
        scores.append(found)
        states.append(state)
    return scores, states


@pytest.fixture
def rounds(rng):
    base = rng.normal(size=(6, 40)) + 3
    return [base * 0.9**t + 0.1 * rng.normal(size=base.shape) for t in range(5)]


def test_scores_are_the_papers_on_all_parameters(rounds, rng):
    globals_ = [r.mean(axis=0) + rng.normal(size=40) for r in rounds]
    scores, _ = play(Flanders(keep=6), rounds, global_models=globals_)
    assert scores[0] is None
    np.testing.assert_allclose(scores[1].values, ((rounds[1] - rounds[0]) ** 2).sum(axis=1), rtol=1e-9)
    for t in range(2, 5):
        expected = direct_score(rounds[:t], globals_, rounds[t])
        np.testing.assert_allclose(scores[t].values, expected, rtol=1e-8)


def test_the_incremental_products_equal_those_computed_afresh(rounds, rng):
    """Amending without the scores recomputes everything; both paths must agree to the last digits."""
    filter_ = Flanders(keep=4, window=3)
    with_scores, without = filter_.init(np.random.default_rng(0)), filter_.init(np.random.default_rng(0))
    for updates in rounds:
        round_ = Round(updates, global_model=updates.mean(axis=0) + rng.normal(size=40))
        found = filter_.score(with_scores, round_)
        again = filter_.score(without, round_)
        kept = filter_.select(found) if found else np.arange(6)
        if found:
            np.testing.assert_allclose(found.values, again.values, rtol=1e-10)
        model = updates[kept].mean(axis=0)
        with_scores = filter_.amend(with_scores, round_, kept, model, found)
        without = filter_.amend(without, round_, kept, model)
    np.testing.assert_allclose(with_scores.gram, without.gram, rtol=1e-9, atol=1e-9)


def test_small_displacements_of_large_float32_models_keep_their_scores(rng):
    """At |u| / |theta| = 3e-4 an uncentred float32 product loses the scores; ours does not."""
    g = rng.normal(size=20_000).astype(np.float32)
    rounds = []
    for t in range(4):
        u = 3e-4 * rng.normal(size=(8, 20_000)) * (1 + 0.1 * t)
        rounds.append((g + u).astype(np.float32))
    scores, _ = play(Flanders(keep=8), rounds, global_models=[g] * 4)
    wide = [r.astype(np.float64) for r in rounds]
    expected = direct_score(wide[:3], None, wide[3])
    np.testing.assert_allclose(scores[3].values, expected, rtol=1e-6)


def test_the_papers_worked_example(rng):
    """Section 5.3: ten clients, four a round; c3 is found malicious in round 2, the global model replaces it."""
    d = 12
    selected = [(2, 3, 7, 9), (1, 3, 6, 9), (2, 3, 4, 5)]
    globals_ = [rng.normal(size=d) for _ in range(3)]
    models = [globals_[t] + 0.1 * rng.normal(size=(4, d)) for t in range(3)]
    models[1][1] += 5  # c3
    filter_ = Flanders(keep=2, amend_with="global")
    state = filter_.init(np.random.default_rng(0))

    first = Round(models[0], selected[0], global_model=globals_[0])
    assert filter_.score(state, first) is None
    state = filter_.amend(state, first, np.arange(4), globals_[1])

    second = Round(models[1], selected[1], global_model=globals_[1])
    scores = dict(zip(selected[1], filter_.score(state, second).values, strict=True))
    # c3 and c9 against the forecast (their own last models: one round makes no training pair yet) ...
    assert scores[3] == pytest.approx(((models[1][1] - models[0][1]) ** 2).sum())
    assert scores[9] == pytest.approx(((models[1][3] - models[0][3]) ** 2).sum())
    # ... c1 and c6, never seen, against the current global model; nobody else has a score.
    assert scores[1] == pytest.approx(((models[1][0] - globals_[1]) ** 2).sum())
    assert scores[6] == pytest.approx(((models[1][2] - globals_[1]) ** 2).sum())
    assert set(scores) == {1, 3, 6, 9}
    found = filter_.score(state, second)
    kept = filter_.select(found)
    assert len(kept) == 2
    assert 1 not in kept
    # As in the example, k = 2 and c1 and c9 are kept.
    state = filter_.amend(state, second, np.array([0, 3]), globals_[2], found)
    np.testing.assert_array_equal(state.snapshots[-1].rows[1], globals_[1])

    third = Round(models[2], selected[2], global_model=globals_[2])
    scores = dict(zip(selected[2], filter_.score(state, third).values, strict=True))
    # c2 was there in round 1 but not in round 2: cold start, like c4 and c5.
    for row, client in ((0, 2), (2, 4), (3, 5)):
        assert scores[client] == pytest.approx(((models[2][row] - globals_[2]) ** 2).sum())
    # c3 against the forecast from the amended matrices, extended to all clients with global models.
    everyone = [2, 3, 7, 9, 1, 6]
    before = np.stack([models[0][selected[0].index(c)] if c in selected[0] else globals_[0] for c in everyone])
    amended = models[1].copy()
    amended[1] = globals_[1]
    amended[2] = globals_[1]
    last = np.stack([amended[selected[1].index(c)] if c in selected[1] else globals_[1] for c in everyone])
    forecast = direct_als([before.T, last.T], 1, 200)[:, everyone.index(3)]
    assert scores[3] == pytest.approx(((models[2][1] - forecast) ** 2).sum(), rel=1e-5)


def test_a_rejected_client_is_remembered_by_its_last_accepted_model(rounds):
    _, states = play(Flanders(keep=4), rounds[:3], keep_rows=[None, [0, 1, 2, 3], [0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(states[1].snapshots[-1].rows[4:], rounds[0][4:])
    np.testing.assert_array_equal(states[2].snapshots[-1].rows[5], rounds[0][5])
    np.testing.assert_array_equal(states[2].snapshots[-1].rows[4], rounds[2][4])


def test_amending_with_the_global_model_remembers_the_model_the_round_started_from(rounds):
    globals_ = [r.mean(axis=0) for r in rounds]
    filter_ = Flanders(keep=4, amend_with="global")
    _, states = play(filter_, rounds[:2], keep_rows=[None, [0, 1, 2, 3]], global_models=globals_[:2])
    np.testing.assert_array_equal(states[1].snapshots[-1].rows[4:], np.stack([globals_[1]] * 2))


def test_clients_are_known_by_id_not_by_position(rounds, rng):
    shuffled, clients = [], []
    for r in rounds:
        order = rng.permutation(6)
        shuffled.append(r[order])
        clients.append(tuple(f"c{i}" for i in order))
    plain, _ = play(Flanders(keep=6), rounds, clients=[tuple(f"c{i}" for i in range(6))] * 5)
    moved, _ = play(Flanders(keep=6), shuffled, clients=clients)
    for t in range(1, 5):
        by_name = dict(zip(moved[t].clients, moved[t].values, strict=True))
        np.testing.assert_allclose([by_name[f"c{i}"] for i in range(6)], plain[t].values, rtol=1e-8)


def test_clients_may_come_and_go_in_any_number(rng):
    defense = Defense(Flanders(keep=0.5, window=3, order=2), seed=0)
    for count in (5, 1, 9, 3, 12, 2):
        clients = rng.choice(20, size=count, replace=False).tolist()
        outcome = defense(rng.normal(size=(count, 30)), clients)
        assert np.all(np.isfinite(outcome.model))
        assert outcome.scores is None or np.all(np.isfinite(outcome.scores.values))


def test_the_window_bounds_the_memory(rounds):
    _, states = play(Flanders(keep=6, window=3), rounds)
    assert [len(s.snapshots) for s in states] == [1, 2, 3, 3, 3]
    assert states[-1].gram.shape == (21, 21)


@pytest.mark.parametrize("distance", ["l1", 0.5, 2.0, "l2", "squared-l2"])
def test_distances_are_those_of_the_forecast_vector(distance, rounds):
    globals_ = [r.mean(axis=0) for r in rounds]
    scores, _ = play(Flanders(keep=6, distance=distance), rounds[:3], global_models=globals_)
    forecast = (rounds[1].T @ np.linalg.pinv(rounds[0].T) @ rounds[1].T).T
    residual = np.abs(rounds[2] - forecast)
    p = {"l1": 1.0, "l2": 2.0, "squared-l2": 2.0}.get(distance, distance)
    expected = (residual**p).sum(axis=1) ** (1 if distance == "squared-l2" else 1 / p)
    np.testing.assert_allclose(scores[2].values, expected, rtol=1e-6)


def test_cosine_distance_compares_directions_from_the_global_model(rounds):
    globals_ = [r.mean(axis=0) for r in rounds]
    scores, _ = play(Flanders(keep=6, distance="cosine"), rounds[:3], global_models=globals_)
    forecast = (rounds[1].T @ np.linalg.pinv(rounds[0].T) @ rounds[1].T).T
    u, v = rounds[2] - globals_[2], forecast - globals_[2]
    expected = 1 - (u * v).sum(axis=1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    np.testing.assert_allclose(scores[2].values, expected, rtol=1e-6, atol=1e-9)


def test_centring_models_displacements_from_the_current_global_model(rounds):
    globals_ = [r.mean(axis=0) + 0.3 for r in rounds]
    scores, _ = play(Flanders(keep=6, center=True), rounds[:3], global_models=globals_)
    before, last, now = (r - globals_[2] for r in rounds[:3])
    forecast = (last.T @ np.linalg.pinv(before.T) @ last.T).T
    np.testing.assert_allclose(scores[2].values, ((now - forecast) ** 2).sum(axis=1), rtol=1e-7)


def test_a_sample_of_all_parameters_equals_no_sample(rounds):
    plain, _ = play(Flanders(keep=6), rounds)
    for filter_ in (Flanders(keep=6, look=Sample(40)), Flanders(keep=6, look=Sample(999, redraw=True))):
        sampled, _ = play(filter_, rounds)
        np.testing.assert_allclose(sampled[4].values, plain[4].values, rtol=1e-8)


def test_a_fixed_sample_stays_and_a_redrawn_one_changes(rng):
    """The same models every round: only what is looked at can change the scores of a cold-start client."""
    models = rng.normal(size=(4, 50))

    def scores_of_newcomers(filter_):
        state = filter_.init(np.random.default_rng(0))
        found = []
        for t in range(4):
            round_ = Round(models, tuple(f"{t}-{i}" for i in range(4)), global_model=np.zeros(50))
            scores = filter_.score(state, round_)
            state = filter_.amend(state, round_, np.arange(4), models.mean(axis=0), scores)
            found.append(scores)
        return [s.values for s in found[1:]]

    fixed = scores_of_newcomers(Flanders(keep=4, look=Sample(10)))
    np.testing.assert_allclose(fixed[0], fixed[1])
    np.testing.assert_allclose(fixed[1], fixed[2])
    redrawn = scores_of_newcomers(Flanders(keep=4, look=Sample(10, redraw=True)))
    assert not np.allclose(redrawn[0], redrawn[1])


def test_a_poisoner_outside_the_fixed_sample_is_seen_by_all_parameters_and_by_sketches(rng):
    """The blind spot of sampling: honest where the server looks, poisoned elsewhere."""
    d = 2000
    base = rng.normal(size=(10, d))
    rounds = [base + 0.05 * rng.normal(size=base.shape) for _ in range(4)]

    def caught(filter_):
        state = filter_.init(np.random.default_rng(5))
        for t, updates in enumerate(rounds):
            models = updates.copy()
            if t == 3:
                blind = np.ones(d, dtype=bool)
                if isinstance(filter_.look, Sample):
                    blind[filter_.visible_columns(state, d)] = False
                models[0, blind] += 0.5
            round_ = Round(models)
            found = filter_.score(state, round_)
            kept = filter_.select(found) if found else np.arange(10)
            state = filter_.amend(state, round_, kept, models[kept].mean(axis=0), found)
        return found.values[0] > 5 * found.values[1:].max()

    assert not caught(Flanders(keep=9, look=Sample(100)))
    assert caught(Flanders(keep=9))
    assert caught(Flanders(keep=9, look=Sketch(256)))


def test_exactly_k_are_kept_when_scores_tie():
    models = np.zeros((6, 3))
    defense = Defense(Flanders(keep=4), seed=0)
    for _ in range(3):
        outcome = defense(models, ("f", "e", "d", "c", "b", "a"))
    assert outcome.dropped == ("f", "e")  # ties go by name


def test_a_fraction_keeps_that_share_of_each_round():
    defense = Defense(Flanders(keep=0.3), seed=0)
    for count in (10, 10, 7):
        outcome = defense(np.random.default_rng(count).normal(size=(count, 5)))
    assert len(outcome.kept) == 3  # ceil(0.3 * 7)


def test_nobody_is_dropped_where_more_are_to_be_kept_than_there_are_and_it_says_so(rng, caplog):
    defense = Defense(Flanders(keep=8))
    defense(rng.normal(size=(10, 2)))
    updates = rng.normal(size=(10, 2))
    updates[:3] = np.nan  # whatever clients send, the round goes on
    assert defense(updates).dropped == (0, 1, 2)
    assert "asked to keep 8 clients, but only 7 clients of the round can be used" in caplog.text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, r"either `keep`.*use Guard\(\)"),
        ({"window": 3}, "either `keep`"),
        ({"keep": 3, "threshold": 0.5}, "either `keep`"),
        ({"keep": 5, "min_honest": 0.5}, "is used only with `threshold`"),
        ({"keep": 5, "distance": math.inf}, "`distance` parameter"),
        ({"keep": 0}, "`keep` parameter of Flanders must be a whole number of at least 1"),
        ({"keep": 1.5}, "fraction"),
        ({"threshold": 2}, "from 0 to 1"),
        ({"keep": 3, "window": 1}, "`window`.*at least 2"),
        ({"keep": 3, "order": 2}, "`window`.*at least 3"),
        ({"keep": 3, "distance": "l3"}, "must be one of"),
        ({"keep": 3, "amend_with": "lastaccepted"}, "Did you mean 'last-accepted'"),
        ({"keep": 3, "look": Sketch(64), "distance": "l1"}, r"Sketch\(width=64.*Euclidean"),
        ({"keep": 3, "look": Sketch}, r"`look` parameter of Flanders must be a Look, e\.g\. Sample\(500\)"),
        ({"keep": 3, "look": 500}, "must be a Look"),
        ({"keep": 3, "solver": 50}, r"`solver` parameter of Flanders must be an Als, e\.g\."),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        Flanders(**parameters)


def test_the_filter_has_at_most_ten_parameters():
    assert len(FILTERS.describe("flanders").parameters) <= 10


def test_under_a_threshold_a_loud_minority_and_a_loud_majority_are_dropped_and_b_is_never_told(rng):
    base = rng.normal(size=(30, 200))
    for malicious in (6, 24):
        defense = Defense(Flanders(threshold=0.5), seed=0)
        for t in range(8):
            models = base * 0.95**t + 0.1 * rng.normal(size=base.shape)
            if t >= 4:
                models[:malicious] += rng.normal(size=(malicious, 200))
            outcome = defense(models)
            if t >= 4:
                assert set(range(malicious)) <= set(outcome.dropped)
                assert len(outcome.dropped) <= malicious + 2
            if t in (1, 2):
                assert outcome.dropped == ()  # nothing to calibrate on yet
            if t == 3:
                assert len(outcome.dropped) <= 3
    assert outcome.scores.probabilities.min() >= 0
    assert outcome.scores.probabilities.max() <= 1
