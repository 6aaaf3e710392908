from __future__ import annotations

import numpy as np

from flanders.linalg.spectral import principal_components


def test_components_come_from_inner_products_alone():
    rows = np.random.default_rng(0).normal(size=(6, 50))
    centred = rows - rows.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    found = principal_components(rows @ rows.T)
    np.testing.assert_allclose(np.abs(found[:, ::-1]), np.abs(u[:, :2] * s[:2]), atol=1e-9)
