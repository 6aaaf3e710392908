from __future__ import annotations

import numpy as np

from flanders.attacks import DeltaFreeRider, View


def test_the_last_step_of_the_global_model_is_repeated_with_noise_of_its_size():
    rng, d = np.random.default_rng(0), 20_000
    before, step = rng.normal(size=d), 0.5 * rng.normal(size=d)
    attack = DeltaFreeRider(sigma=0.2)
    first = View(own=np.zeros((2, d)), global_model=before, num_clients=5)
    assert np.array_equal(attack(first), np.tile(before, (2, 1)))
    memory = attack.remember(first, attack(first))
    rows = attack(View(own=np.zeros((2, d)), global_model=before + step, num_clients=5, memory=memory), rng)
    noise = rows - (before + 2 * step)
    assert abs(noise.std() / (0.2 * 0.5) - 1) < 0.03
    assert abs(np.corrcoef(noise)[0, 1]) < 0.05  # each client has noise of its own
