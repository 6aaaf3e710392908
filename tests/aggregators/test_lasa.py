from __future__ import annotations

import numpy as np

from flanders.aggregators import Lasa
from flanders.round import Round

LAYERS = {"a.weight": 30, "b.weight": 20}


def test_a_client_that_is_abnormal_in_one_layer_still_counts_in_the_others():
    rng = np.random.default_rng(0)
    rows = 1 + 0.1 * rng.normal(size=(10, 50))
    rows[0, :30] *= -1  # abnormal signs in the first layer alone
    model = Lasa(sparsity=0.0, length_bound=9.0).aggregate(Round(rows, layers=LAYERS), rng)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped = rows * np.minimum(1, np.median(lengths) / lengths)
    np.testing.assert_allclose(model[:30], clipped[1:, :30].mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(model[30:], clipped[:, 30:].mean(axis=0), atol=1e-12)


def test_small_parameters_of_each_client_are_not_averaged():
    model = Lasa(sparsity=0.5)(np.array([[4.0, 1.0], [4.0, 1.0], [4.0, 1.0]]))
    assert model.tolist() == [4.0, 0.0]
