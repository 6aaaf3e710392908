from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.attacks import SignFlip
from flanders.checks import InputError
from flanders.data import Digits, Iid
from flanders.filters import Guard
from flanders.simulation import Simulation, StaleTrainer, Trained
from settings import make_setting


class Steps:
    """Moves each client by its number, and notes where it has started from."""

    def __init__(self):
        self.starts = []

    def train(self, model, buffers, clients, seed, *, poisoner=None, poisoned=()):
        self.starts.append((float(model[0]), list(clients)))
        steps = torch.as_tensor(np.asarray(clients), dtype=model.dtype)[:, None]
        return Trained(model + steps, {"count": torch.stack([buffers["count"] + 1] * len(clients))})


def test_each_client_starts_from_a_model_of_its_age_and_its_step_is_kept() -> None:
    inner = Steps()
    trainer = StaleTrainer(inner, max_age=2)
    for number in range(12):
        model = torch.full((4,), 100.0 * number)
        trained = trainer.train(model, {"count": torch.tensor(float(number))}, np.arange(8), seed=number)
        assert torch.equal(trained.updates, model + torch.arange(8.0)[:, None].expand(8, 4))
        starts = dict(inner.starts)
        inner.starts.clear()
        assert set(starts) <= {100.0 * max(0, number - age) for age in range(3)}
        assert sorted(client for some in starts.values() for client in some) == list(range(8))
        for start, clients in starts.items():
            assert (trained.buffers["count"][clients] == start / 100 + 1).all()
    assert len(starts) == 3


def test_without_age_nothing_changes() -> None:
    setting = make_setting(num_clients=5, rounds=3, device="cpu")
    plain, stale = Simulation(setting), Simulation(setting)
    stale.trainer = StaleTrainer(stale.trainer, max_age=0)
    for one, other in zip(plain.run(), stale.run(), strict=True):
        assert one.accuracy == other.accuracy
    assert torch.equal(plain.model, stale.model)


def test_the_default_filter_finds_attackers_among_replies_of_different_ages() -> None:
    setting = make_setting(
        num_clients=20, rounds=8, filter=Guard(), attack=SignFlip(), fraction=0.2, start=2, seed=1, device="cpu",
        partition=Iid(),
    )  # fmt: skip
    simulation = Simulation(setting, Digits().load(None))
    simulation.trainer = StaleTrainer(simulation.trainer, max_age=3)
    records = list(simulation.run())
    caught = sum((record.malicious & ~record.kept).sum() for record in records)
    wronged = sum((~record.malicious & ~record.kept).sum() for record in records)
    assert caught >= 0.9 * 4 * 7
    assert wronged <= 0.1 * 16 * 8


def test_a_negative_age_is_refused() -> None:
    with pytest.raises(InputError, match="The `max_age` parameter of StaleTrainer"):
        StaleTrainer(Steps(), max_age=-1)
