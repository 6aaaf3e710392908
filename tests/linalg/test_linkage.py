from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import HDBSCAN

from flanders.linalg.linkage import majority_heights


@pytest.mark.parametrize("m", [3, 4, 9, 20, 51])
@pytest.mark.parametrize("seed", range(6))
def test_the_majority_is_the_cluster_that_hdbscan_finds(m, seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, 3))
    points[: m // 3] += seed  # from no second group to one that is far away
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    theirs = HDBSCAN(
        min_cluster_size=m // 2 + 1, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True
    )
    heights = majority_heights(distances)
    assert (heights == heights.min()).tolist() == (theirs.fit_predict(distances) == 0).tolist()


def test_rows_that_join_at_the_same_distance_join_together():
    x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 9.0])
    assert majority_heights(np.abs(x[:, None] - x)).tolist() == [1, 1, 1, 1, 1, 5]


@pytest.mark.parametrize("m", [1, 2])
def test_of_one_or_two_rows_all_are_the_majority(m):
    assert np.ptp(majority_heights(1.0 - np.eye(m))) == 0
