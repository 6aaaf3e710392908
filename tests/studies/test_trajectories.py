"""Two clients followed through rounds in which no malicious model reaches the global one."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import InputError
from flanders.attacks import Gauss, Lie
from flanders.studies.trajectories import follow
from settings import make_setting


def setting(**changes):
    given = {"num_clients": 6, "rounds": 4, "attack": Gauss(), "fraction": 0.5, "rotating": False}
    return make_setting(**{**given, "device": "cpu", "seed": 3, **changes})


def test_what_the_attacker_sends_reaches_neither_the_global_model_nor_the_honest_client():
    loud, quiet = follow(setting()), follow(setting(attack=Lie()))
    np.testing.assert_array_equal(loud.global_models, quiet.global_models)
    np.testing.assert_array_equal(loud.honest, quiet.honest)
    assert not np.allclose(loud.malicious, quiet.malicious)
    assert loud.honest.shape == (4, 9610)


def test_the_malicious_client_is_the_attackers_and_the_honest_one_is_not():
    found = follow(setting())
    moved = found.displacements()
    assert moved.malicious.std() == pytest.approx(10, rel=0.02)  # GAUSS adds noise of deviation 10
    assert moved.honest.std() < 0.1


def test_without_poison_the_honest_client_moves_from_where_the_round_started():
    found = follow(setting())
    steps = np.linalg.norm(found.honest - found.global_models, axis=1)
    np.testing.assert_allclose(np.linalg.norm(found.displacements().honest, axis=1), steps)
    assert np.all(steps > 0)


@pytest.mark.parametrize(
    "changes",
    [{"rotating": True}, {"clients_per_round": 3}, {"fraction": 0.0}, {"fraction": 1.0}],
)
def test_federations_in_which_nobody_can_be_followed_are_errors(changes):
    with pytest.raises(InputError, match="all clients must be selected"):
        follow(setting(**changes))
