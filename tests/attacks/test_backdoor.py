from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import ModelReplacement, Neurotoxin, View

G = np.arange(20.0)


def view(own, memory=None, g=G, num_clients=10):
    return View(own=own, global_model=g, num_clients=num_clients, memory=memory)


def test_the_average_becomes_what_the_attacker_trained():
    trained = G + np.random.default_rng(0).normal(size=20)
    rows = ModelReplacement()(view(np.tile(trained, (2, 1))))
    honest = np.tile(G, (8, 1))
    np.testing.assert_allclose(np.concatenate([rows, honest]).mean(axis=0), trained)


@pytest.mark.parametrize("bound", [0.5, 1e9])
def test_no_step_is_longer_than_the_bound_or_more_than_boosted(bound):
    own = G + np.random.default_rng(0).normal(size=(3, 20))
    lengths = np.linalg.norm(ModelReplacement(boost=4.0, bound=bound)(view(own)) - G, axis=1)
    np.testing.assert_allclose(lengths, np.minimum(bound, 4 * np.linalg.norm(own - G, axis=1)))


def test_busy_parameters_are_left_alone():
    attack, rng = Neurotoxin(share=0.1), np.random.default_rng(0)
    first = view(G + rng.normal(size=(2, 20)))
    assert np.array_equal(attack(first), first.own)
    memory = attack.remember(first, first.own)
    step = 0.1 * rng.random(20)
    step[[3, 11]] = [-5.0, 4.0]
    second = view(G + step + rng.normal(size=(2, 20)), memory, G + step)
    rows = attack(second)
    kept = np.ones(20, dtype=bool)
    kept[[3, 11]] = False
    assert np.array_equal(rows[:, kept], second.own[:, kept])
    assert np.array_equal(rows[:, ~kept], np.tile((G + step)[~kept], (2, 1)))


def test_if_the_global_model_stays_the_same_parameters_are_busy():
    attack, rng = Neurotoxin(share=0.1), np.random.default_rng(0)
    step = 0.1 * rng.random(20)
    step[[3, 11]] = 4.0
    memory = attack.remember(view(np.tile(G, (1, 1))), G[None])
    moved = view((G + step)[None] + 1, memory, G + step)
    memory = attack.remember(moved, attack(moved))
    again = view((G + step)[None] + 1, memory, G + step)
    assert np.flatnonzero(attack(again)[0] == G + step).tolist() == [3, 11]
