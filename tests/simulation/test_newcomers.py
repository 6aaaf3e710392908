"""The default filter in federations where most clients of a round are new."""

from __future__ import annotations

import pytest

from flanders.experiments.spec import parse_spec
from flanders.results.confusion import Confusion
from flanders.simulation import Simulation


@pytest.mark.parametrize("attack", ["sign-flip", "own-pull"])
def test_a_minority_is_dropped_and_not_the_honest_majority(attack):
    (run,) = parse_spec(
        {
            "data": {"dataset": {"name": "synthetic", "num_samples": 20_000}, "partition": {"name": "iid"}},
            "model": {"name": "logistic"},
            "training": {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 10},
            "federation": {"num_clients": 1000, "clients_per_round": 100, "rounds": 5},
            "threat": {"attack": attack, "fraction": 0.2, "rotating": False},
            "run": {"device": "cpu", "threads": 1},
        }
    )
    total = Confusion()
    for record in Simulation(run.setting).run():
        total += Confusion.of(record.malicious, record.kept)
    assert total.recall > 0.95
    assert total.precision > 0.9
