from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from flanders.checks import InputError
from flanders.data import Iid
from flanders.simulation import A3fl, DynamicFlip, Simulation, Training
from flanders.state import load_state, save_state
from settings import make_setting

BASE = {
    "partition": Iid(),
    "training": Training(epochs=3),
    "num_clients": 10,
    "rounds": 4,
    "device": "cpu",
    "fraction": 0.3,
    "rotating": False,
}


def trained(poison, rounds=3):
    """Return a simulation after some rounds without poison, and the laboratory of its malicious clients."""
    simulation = Simulation(make_setting(**{**BASE, "data_poison": poison, "start": rounds + 1}))
    for _ in range(rounds):
        simulation.step()
    clients = np.arange(3)
    return simulation, simulation.world.laboratory(simulation.model, simulation.buffers, clients)


def test_the_laboratory_has_the_examples_of_the_malicious_clients_alone():
    simulation, lab = trained(A3fl(), rounds=1)
    data = simulation.world.data
    expected = torch.cat([data.examples[s : s + n] for s, n in zip(data.starts[:3], data.sizes[:3], strict=True)])
    assert torch.equal(lab.examples, expected)
    assert torch.equal(lab.x, data.x[expected])
    accuracy = (lab.classes(lab.x, lab.model) == lab.y).double().mean()
    assert accuracy > 0.6


def test_a_learned_patch_fools_a_model_that_never_saw_it():
    poison = A3fl(target=3, size=4, steps=30)
    simulation, lab = trained(poison)
    scope = simulation.world.poisoner.scope
    others = lab.y != 3

    def success():
        shown, _, _ = poison.aim(lab.x, lab.y, scope)
        return float((lab.classes(shown, lab.model)[others] == 3).double().mean())

    grey = success()
    scope.learned.copy_(poison.learn(lab, scope))
    assert success() > grey + 0.15
    assert float(scope.learned.min()) >= scope.lowest
    assert float(scope.learned.max()) <= scope.highest


def test_without_the_second_model_each_step_follows_the_sign_of_the_slope():
    poison = A3fl(target=3, size=2, steps=1, rate=0.1, weight=0.0)
    simulation, lab = trained(poison, rounds=1)
    scope = simulation.world.poisoner.scope
    patch = scope.learned.clone().requires_grad_()
    where = poison.patch((1, 8, 8), lab.x.device)
    loss = functional.cross_entropy(lab.logits(torch.where(where, patch, lab.x)), torch.full_like(lab.y, 3))
    loss.backward()
    expected = scope.learned - 0.1 * (scope.highest - scope.lowest) * patch.grad.sign()
    torch.testing.assert_close(poison.learn(lab, scope), expected.clamp(scope.lowest, scope.highest))


def test_a_model_that_unlearns_the_patch_resists_it():
    poison = A3fl(target=3, size=4, unlearning=20)
    simulation, lab = trained(poison)
    scope = simulation.world.poisoner.scope
    patch = poison.learn(lab, scope)
    where = poison.patch((1, 8, 8), lab.x.device)
    shown = torch.where(where, patch, lab.x)
    unlearned = poison._unlearned(lab, where, patch)
    before, after = (float((lab.classes(shown, m) == lab.y).double().mean()) for m in (lab.model, unlearned))
    assert after > before


def test_a_patch_that_learns_takes_hold_and_changes_from_round_to_round():
    simulation = Simulation(make_setting(**BASE, data_poison=A3fl(target=3, size=4)))
    patches, records = [], []
    for _ in range(4):
        records.append(simulation.step())
        patches.append(simulation.world.poisoner.scope.learned.clone())
    assert not torch.equal(patches[0], patches[1])
    assert records[-1].attack_success > 0.5
    assert records[-1].accuracy > 0.8


def test_dynamic_flips_take_the_least_likely_wrong_label():
    simulation, lab = trained(DynamicFlip(), rounds=2)
    scope = simulation.world.poisoner.scope
    before = scope.learned.clone()
    assert torch.equal(before, 9 - simulation.world.data.y)
    labels = DynamicFlip().learn(lab, scope)
    logits = lab.logits(lab.x).detach()
    for number, example in enumerate(lab.examples.tolist()):
        order = [int(k) for k in torch.argsort(logits[number]) if int(k) != int(lab.y[number])]
        assert int(labels[example]) == order[0]
    untouched = torch.ones(len(labels), dtype=torch.bool)
    untouched[lab.examples] = False
    assert torch.equal(labels[untouched], before[untouched])


def test_dynamic_flips_hurt_accuracy():
    flipped = list(Simulation(make_setting(**{**BASE, "fraction": 0.4, "data_poison": DynamicFlip()})).run())
    plain = list(Simulation(make_setting(**{**BASE, "fraction": 0.0})).run())
    assert flipped[-1].accuracy < plain[-1].accuracy - 0.08


@pytest.mark.parametrize("poison", [A3fl(target=3), DynamicFlip()], ids=str)
def test_a_run_goes_on_with_what_the_poison_has_learned(poison, tmp_path):
    setting = make_setting(**BASE, data_poison=poison)
    whole = Simulation(setting)
    expected = [record.accuracy for record in whole.run()]
    first = Simulation(setting)
    found = [first.step().accuracy for _ in range(2)]
    save_state(tmp_path / "state.npz", first.state_dict())
    first.step()  # the saved state must not change with it
    second = Simulation(setting)
    second.load_state_dict(load_state(tmp_path / "state.npz", like=second.like))
    found += [record.accuracy for record in second.run()]
    assert found == expected
    assert torch.equal(second.model, whole.model)


@pytest.mark.parametrize(("name", "bad"), [("steps", 0), ("rate", 2.0), ("weight", -1.0), ("unlearning", 1.5)])
def test_parameters_that_make_no_sense_are_refused(name, bad):
    with pytest.raises(InputError, match=name):
        A3fl(**{name: bad})
