from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import NormClipping, RobustLearningRate
from flanders.round import Round


@pytest.mark.parametrize("agreement", [1, 4, 8])
def test_it_is_the_papers_formula_parameter_by_parameter(agreement):
    rng = np.random.default_rng(agreement)
    g, rows, weights = rng.normal(size=50), rng.normal(size=(10, 50)), rng.integers(1, 9, size=10)
    found = RobustLearningRate(agreement, weighted=True)(rows, weights, global_model=g)
    for j in range(50):
        steps = rows[:, j] - g[j]
        rate = 1 if abs(np.sign(steps).sum()) >= agreement else -1
        assert found[j] == pytest.approx(g[j] + rate * weights @ steps / weights.sum(), abs=1e-12)


def test_a_fraction_is_a_share_of_the_round():
    rows = np.array([[1.0], [1.0], [1.0], [-1.0]])  # the signs add up to 2
    assert RobustLearningRate(0.5)(rows) == 0.5
    assert RobustLearningRate(0.75)(rows) == -0.5


def test_a_minority_that_pushes_idle_parameters_is_undone():
    """Honest clients only jitter in the second parameter; three of ten push it up."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([1 + 0.1 * rng.normal(size=10), 0.1 * np.tile([1.0, -1.0], 5)])
    rows[:3, 1] = 0.5
    pushed = (NormClipping() | RobustLearningRate(agreement=6)).aggregate(Round(rows), rng)
    assert pushed[0] > 0.8
    assert pushed[1] < 0 < rows[:, 1].mean()
