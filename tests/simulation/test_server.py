from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders import InputError
from flanders.filters import SkyMask
from flanders.round import Differentiable
from flanders.simulation import Simulation, World
from flanders.simulation.setting import Server
from settings import make_setting


def test_the_gradient_of_the_losses_is_their_slope():
    world = World(make_setting(num_clients=3, device="cpu", server=Server(examples=50)))
    losses = world.server.evaluate({})
    assert isinstance(losses, Differentiable)
    model = world.layout.flatten(world.module).double()
    world.server._x = world.server._x.double()
    gradient, direction = losses.gradient(model), torch.randn(len(model), generator=torch.manual_seed(0)).double()
    step = 1e-6 * direction
    slope = (losses(model + step).mean() - losses(model - step).mean()) / 2e-6
    assert float(gradient @ direction) == pytest.approx(slope, rel=1e-5)


def test_a_filter_that_needs_examples_says_so_before_the_first_round():
    with pytest.raises(
        InputError, match=r"The filter SkyMask.* needs examples .* Set `server.examples`, e.g. to 100"
    ):
        make_setting(filter=SkyMask())


def test_skymask_gets_what_it_needs_from_the_simulation():
    setting = make_setting(
        num_clients=5, rounds=2, device="cpu", server=Server(examples=30), filter=SkyMask(steps=2)
    )
    scores = [record.scores for record in Simulation(setting).run()]
    assert np.all(np.isfinite(scores))
