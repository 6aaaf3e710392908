from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.attacks import ModelReplacement, Neurotoxin, View
from flanders.simulation import Backdoor, Simulation, Training, World
from settings import make_setting

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


@pytest.mark.parametrize("training", [Training("sgd", 0.05), Training("adam", 3e-3)], ids=["sgd", "adam"])
def test_in_the_simulator_no_gradient_moves_busy_parameters(training):
    """What malicious clients train is already projected, and the rest of the model has made up for it."""
    seen = []

    class Spy(Neurotoxin):
        def craft(self, view, rng):
            seen.append((view, self.frozen(view.memory, view.global_model)))
            return super().craft(view, rng)

    fields = {"training": training, "num_clients": 6, "rounds": 3, "rotating": False, "fraction": 0.5}
    poison = Backdoor(target=3, boost=1.0)
    simulation = Simulation(make_setting(**fields, data_poison=poison, attack=Spy(share=0.2)))
    list(simulation.run())
    assert seen[0][1] is None
    for view, busy in seen[1:]:
        assert int(busy.sum()) == round(0.2 * len(busy))
        assert bool((view.own[:, busy] == view.global_model[busy]).all())
        assert bool((view.own[:, ~busy] != view.global_model[~busy]).any())
        honest = view.benign - view.global_model
        assert bool((honest[:, busy] != 0).any())  # the others train everything


def test_training_with_frozen_parameters_is_not_the_projected_training():
    world = World(make_setting(num_clients=4, data_poison=Backdoor(boost=1.0), attack=Neurotoxin(), fraction=0.5))
    model = world.layout.flatten(world.module)
    mask = torch.arange(len(model)) % 3 == 0
    options = {"poisoner": world.poisoner, "poisoned": [True, False]}
    free = world.make_trainer().train(model, {}, [0, 1], 7, **options).updates
    world.freeze(mask)
    frozen = world.make_trainer().train(model, {}, [0, 1], 7, **options).updates
    assert torch.equal(frozen[0, mask], model[mask])
    assert not torch.equal(frozen[0, ~mask], free[0, ~mask])
    assert torch.equal(frozen[1], free[1])
    world.freeze(None)
    assert torch.equal(world.make_trainer().train(model, {}, [0, 1], 7, **options).updates, free)
