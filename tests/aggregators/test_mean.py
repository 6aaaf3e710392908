from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flanders.aggregators import FedAvg


def test_models_count_by_their_numbers_of_examples() -> None:
    # (1 * 10 + 2 * 40 + 1 * 30) / 4 = 30, (1 * 0 + 2 * 4 + 1 * -8) / 4 = 0
    assert np.array_equal(FedAvg()(np.array([[10.0, 0.0], [40.0, 4.0], [30.0, -8.0]]), [1, 2, 1]), [30.0, 0.0])


@given(st.floats(1e-6, 1e6))
def test_only_the_proportions_of_the_weights_matter(factor: float) -> None:
    rows, weights = np.arange(12.0).reshape(4, 3), np.array([3.0, 1.0, 4.0, 1.0])
    np.testing.assert_allclose(FedAvg()(rows, weights * factor), FedAvg()(rows, weights), rtol=1e-12)


def test_a_thousand_equal_float32_models_average_to_themselves() -> None:
    row = np.random.default_rng(0).normal(size=50).astype(np.float32)
    np.testing.assert_allclose(FedAvg()(np.tile(row, (1000, 1))), row, rtol=1e-5)
