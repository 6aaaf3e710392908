from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from flanders import InputError
from flanders.data import from_arrays
from flanders.models import OwnModel
from flanders.simulation import Federation, Setting, Simulation

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 5))
DATA = from_arrays(X, (X[:, 0] > 0).astype(int))


def small():
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def sized(input_shape, num_classes):
    return nn.Linear(*input_shape, num_classes)


def simulation(model, seed=0):
    return Simulation(Setting(model=model, federation=Federation(num_clients=4, rounds=1, seed=seed)), DATA)


@pytest.mark.parametrize(
    ("model", "size"), [(small(), 50), (small, 50), (sized, 12)], ids=["module", "made", "sized"]
)
def test_a_module_or_a_function_that_makes_one_is_a_model(model, size) -> None:
    played = simulation(model)
    assert played.model.shape == (size,)
    (record,) = played.run()
    assert 0 <= record.accuracy <= 1


def test_a_module_keeps_its_weights_and_is_not_trained_itself() -> None:
    module = small()
    before = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    played = simulation(module)
    torch.testing.assert_close(played.model, before)
    list(played.run())
    assert not torch.equal(played.model, before)
    torch.testing.assert_close(nn.utils.parameters_to_vector(module.parameters()), before)


def test_what_a_function_makes_depends_on_the_seed() -> None:
    first, again, other = (simulation(small, seed).model for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(4, 2), r"Linear cannot take examples of shape \(5,\)"),
        (nn.Linear(5, 3), r"must turn 2 examples into an array of shape \(2, 2\)"),
        (lambda: 7, "must return a torch.nn.Module"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_told(model, message) -> None:
    with pytest.raises(InputError, match=message):
        simulation(model)


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(InputError, match=r"The `model` parameter of Setting must be a ModelSpec"):
        Setting(model="mlp2")
    with pytest.raises(InputError, match=r"A model must be a torch\.nn\.Module"):
        OwnModel(7)
