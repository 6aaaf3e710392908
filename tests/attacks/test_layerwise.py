from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.attacks import LayerwisePoison, View
from flanders.attacks.attack import Rehearsal
from flanders.attacks.layerwise import critical_tensors
from flanders.data import Iid
from flanders.simulation import Backdoor, LabelFlip, Simulation, Training
from settings import make_setting

LAYERS = {"a": 2, "b": 3, "empty": 0, "c": 1, "d": 2}
SLICES = {"a": slice(0, 2), "b": slice(2, 5), "c": slice(5, 6), "d": slice(6, 8)}


def rehearsal(weights, clean=None):
    """A backdoor whose success is a weighted share of poisoned (one) over clean (zero) values."""
    share = np.array(weights) / np.sum(weights)
    return Rehearsal(np.zeros((2, 8)) if clean is None else clean, lambda m: float(share @ m), LAYERS)


@pytest.mark.parametrize(
    ("weights", "enough", "expected"),
    [
        ([0, 0, 0, 0, 0, 1, 0, 0], 0.95, "c"),
        ([5, 4, 0, 0, 0, 1, 0, 0], 0.95, "ac"),
        ([5, 4, 0, 0, 0, 1, 0, 0], 0.9, "a"),
        ([1, 1, 1, 1, 1, 1, 1, 1], 1.0, "bdac"),
        ([1, 1, 1, 1, 1, 1, 1, 1], 0.0, ""),
    ],
)
def test_tensors_are_added_in_the_order_of_what_the_backdoor_loses_without_them(weights, enough, expected):
    found = critical_tensors(np.ones(8), np.zeros(8), rehearsal(weights), enough)
    assert {(s.start, s.stop) for s in found} == {(SLICES[n].start, SLICES[n].stop) for n in expected}


def test_all_but_the_critical_tensors_are_the_mean_clean_model():
    rng = np.random.default_rng(0)
    clean, own = rng.normal(size=(2, 8)), 1 + rng.random(size=(2, 8))
    tried = Rehearsal(clean, lambda m: float(m[5]), LAYERS)
    for scale, critical in ((1.0, own), (0.5, 0.5 * own + 0.5 * clean.mean(axis=0)), (2.0, 2 * own)):
        rows = LayerwisePoison(scale=scale)(View(own, np.zeros(8), 6, rehearsal=tried))
        expected = np.tile(clean.mean(axis=0), (2, 1))
        expected[:, 5] = critical[:, 5]
        np.testing.assert_allclose(rows, expected)


def test_without_a_rehearsal_the_trained_models_are_sent():
    own = np.random.default_rng(0).normal(size=(2, 8))
    rows = LayerwisePoison()(View(own, np.zeros(8), 6))
    assert np.array_equal(rows, own)
    assert rows is not own


BASE = {"partition": Iid(), "training": Training(epochs=3), "num_clients": 10, "rounds": 4, "device": "cpu"}
THREAT = {"fraction": 0.4, "rotating": False, "start": 2}


def test_the_simulator_lets_malicious_clients_train_twice_and_test_their_backdoor():
    seen = []

    class Spy(LayerwisePoison):
        def craft(self, view, rng):
            rows = super().craft(view, rng)
            seen.append((view, rows))
            return rows

    poison = Backdoor(target=3, boost=1.0)
    simulation = Simulation(make_setting(**BASE, **THREAT, data_poison=poison, attack=Spy()))
    before = simulation.step()
    assert seen == []
    model = simulation.model.clone()
    simulation.step()
    ((view, rows),) = seen
    tried = view.rehearsal
    honest = simulation.trainer.train(model, {}, view.clients, simulation.world.seed_of_round(2)).updates
    torch.testing.assert_close(tried.clean, honest)
    assert tried.success(view.own.mean(0)) > tried.success(tried.clean.mean(0)) + 0.3
    same = (rows == tried.clean.mean(0)).all(0)
    assert 0 < int(same.sum()) < len(same)  # some tensors are clean, some are not
    *_, after = simulation.run()
    assert before.attack_success < 0.3
    assert after.attack_success > 0.5
    assert after.accuracy > 0.8


def test_a_poison_without_a_target_leaves_nothing_to_test():
    setting = make_setting(**BASE, **THREAT, data_poison=LabelFlip(), attack=LayerwisePoison())
    plain = make_setting(**BASE, **THREAT, data_poison=LabelFlip())
    found, expected = (list(Simulation(s).run())[-1] for s in (setting, plain))
    assert found.accuracy == expected.accuracy
