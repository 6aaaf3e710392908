"""The attacker on its own, without a simulation around it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.attacks import Gauss, Lie, OnOff, SignFlip
from flanders.simulation import Attacker, Backdoor, Simulation, Threat, Trained
from flanders.simulation.training.trainer import Trainer
from flanders.state import load_state, save_state
from settings import make_setting

M, D = 10, 6


def streams(seed=0):
    return dict(zip(("attack", "attacker"), np.random.default_rng(seed).spawn(2), strict=True))


def attacker(attack=None, **fields):
    return Attacker(Threat(attack, **{"fraction": 0.3, **fields}), M, streams())


def models():
    return torch.from_numpy(np.random.default_rng(1).normal(size=(M, D)))


def test_honest_models_arrive_as_they_are_and_the_others_as_crafted():
    mine = attacker(SignFlip())
    turn = mine.begin(1, np.arange(M))
    received = mine.poison(turn, models(), torch.zeros(D, dtype=torch.float64))
    bad = torch.from_numpy(turn.malicious)
    assert int(bad.sum()) == 3
    assert torch.equal(received.updates[~bad], models()[~bad])
    assert torch.equal(received.updates[bad], -models()[bad])
    np.testing.assert_array_equal(received.malicious, turn.malicious)
    np.testing.assert_array_equal(received.clients, np.arange(M))


def test_before_its_start_the_attacker_controls_clients_but_poisons_none():
    mine = attacker(Lie(), start=3)
    turn = mine.begin(2, np.arange(M))
    assert turn.controlled.sum() == 3
    assert not turn.malicious.any()
    received = mine.poison(turn, models(), torch.zeros(D, dtype=torch.float64))
    assert torch.equal(received.updates, models())
    assert mine.begin(3, np.arange(M)).malicious.sum() == 3


@pytest.mark.parametrize("rotating", [False, True])
def test_clients_are_drawn_anew_only_if_they_rotate(rotating):
    mine = attacker(Lie(), rotating=rotating)
    drawn = {tuple(mine.begin(t, np.arange(M)).controlled) for t in range(1, 9)}
    assert (len(drawn) > 1) is rotating


def test_sybils_appear_under_new_ids_and_honest_clients_under_their_own():
    mine = attacker(SignFlip(), sybils=True)
    turn = mine.begin(4, np.arange(M))
    received = mine.poison(turn, models(), torch.zeros(D, dtype=torch.float64))
    bad = received.malicious
    np.testing.assert_array_equal(received.clients[bad], 4 * M + np.flatnonzero(bad))
    np.testing.assert_array_equal(received.clients[~bad], np.flatnonzero(~bad))


def test_a_backdoor_scales_what_its_clients_have_trained():
    mine = attacker(None, data_poison=Backdoor(boost=2.0))
    turn = mine.begin(1, np.arange(M))
    received = mine.poison(turn, models(), torch.ones(D, dtype=torch.float64))
    bad = torch.from_numpy(turn.malicious)
    torch.testing.assert_close(received.updates[bad], 1 + 2 * (models()[bad] - 1))


def test_an_attacker_that_was_saved_goes_on_bit_for_bit(tmp_path):
    def act(mine, rounds):
        for number in rounds:
            turn = mine.begin(number, np.arange(M))
            yield mine.poison(turn, models(), torch.zeros(D, dtype=torch.float64)).updates

    first, second = attacker(OnOff(base=Gauss())), attacker(OnOff(base=Gauss()))
    whole = list(act(first, range(1, 7)))
    begun = list(act(second, range(1, 4)))
    save_state(tmp_path / "attacker.npz", second.state)
    resumed = attacker(OnOff(base=Gauss()))
    resumed.state = load_state(tmp_path / "attacker.npz", like=models())
    assert all(torch.equal(a, b) for a, b in zip(whole, [*begun, *act(resumed, range(4, 7))], strict=True))


class Remote:
    """A trainer that lets another one do the work, as one on other machines would."""

    def __init__(self, inner: Trainer) -> None:
        self.inner, self.calls = inner, 0

    def train(self, *arguments, **options) -> Trained:
        self.calls += 1
        return self.inner.train(*arguments, **options)


def test_a_simulation_takes_its_trainer_and_its_attacker_as_parts():
    setting = make_setting(num_clients=6, rounds=2, attack=SignFlip(), fraction=0.3, device="cpu")
    plain = Simulation(setting)
    world = Simulation(setting).world
    trainer = Remote(world.make_trainer())
    parts = Simulation(setting, trainer=trainer, attacker=world.make_attacker())
    assert [r.accuracy for r in parts.run()] == [r.accuracy for r in plain.run()]
    assert torch.equal(parts.model, plain.model)
    assert trainer.calls == 2
