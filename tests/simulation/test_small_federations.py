"""The default filter where there are few clients, trained for real."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.experiments.engine import Datasets
from flanders.experiments.spec import resolve
from flanders.simulation import Simulation


def dropped(clients, seed, attack=None, fraction=0.4, start=1):
    """Return which honest and which malicious updates are dropped from the third round on, on digits."""
    point = {
        "data": {"dataset": "digits", "partition": "dirichlet", "alpha": 0.5},
        "training": {"optimizer": "adam", "learning_rate": 0.01},
        "federation": {"num_clients": clients, "rounds": 15, "seed": seed},
    }
    if attack is not None:
        point["threat"] = {"attack": attack, "fraction": fraction, "start": start, "rotating": False}
    spec = resolve(point)
    records = list(Simulation(spec.setting, Datasets().of(spec)).run())[2:]
    kept, bad = (np.concatenate([getattr(r, name) for r in records]) for name in ("kept", "malicious"))
    return ~kept[~bad], ~kept[bad]


@pytest.mark.parametrize("clients", [2, 3, 4, 5, 7, 10])
def test_few_honest_clients_are_dropped(clients):
    honest = np.concatenate([dropped(clients, seed)[0] for seed in (1, 2, 3)])
    assert honest.mean() < 0.06


def test_noise_from_the_first_round_on_is_found_in_a_small_federation():
    for seed in (1, 2):
        honest, malicious = dropped(10, seed, "gauss")
        assert malicious.all()
        assert honest.mean() < 0.06


@pytest.mark.parametrize("clients", [3, 4, 5])
def test_of_a_few_clients_most_of_whom_send_noise_the_others_are_kept(clients):
    honest, malicious = dropped(clients, 1, "gauss", fraction=0.6, start=4)
    assert malicious.mean() > 0.9  # in round 3 they are still honest
    assert honest.mean() < 0.2
