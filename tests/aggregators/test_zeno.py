from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import ZenoPlusPlus
from flanders.checks import InputError

RNG = np.random.default_rng(0)
ROWS, ROOT, G = RNG.normal(size=(12, 30)), RNG.normal(size=30), RNG.normal(size=30)


@pytest.mark.parametrize("parameters", [(0.1, 0.001, 0.0), (0.1, 0.02, 0.0), (1.0, 0.3, 2.0), (0.5, 0.1, 3.0)])
def test_it_averages_what_the_formula_accepts(parameters):
    gamma, rho, epsilon = parameters
    accepted = []
    for row in ROWS:
        step = (row - G) * np.linalg.norm(ROOT) / np.linalg.norm(row - G)
        if gamma * ROOT @ step - rho * step @ step >= -gamma * epsilon:
            accepted.append(step)
    assert 0 < len(accepted) < 12
    found = ZenoPlusPlus(*parameters)(ROWS, global_model=G, root=ROOT)
    np.testing.assert_allclose(found, G + np.mean(accepted, axis=0), atol=1e-12)


def test_a_majority_against_the_server_s_step_is_left_out():
    rows = np.concatenate([G - 100 * ROOT[None, :] * np.ones((8, 1)), G + 3 * ROOT[None, :] * np.ones((2, 1))])
    np.testing.assert_allclose(ZenoPlusPlus()(rows, global_model=G, root=ROOT), G + ROOT, atol=1e-12)


def test_if_nobody_is_accepted_the_global_model_stays():
    assert ZenoPlusPlus()(G - ROOT[None, :], global_model=G, root=ROOT).tolist() == G.tolist()
    assert ZenoPlusPlus()(ROWS, global_model=G, root=np.zeros(30)).tolist() == G.tolist()


def test_it_says_that_it_needs_the_server_s_own_step():
    with pytest.raises(InputError, match="ZenoPlusPlus needs the server's own update"):
        ZenoPlusPlus()(ROWS)
