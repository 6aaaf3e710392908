"""Arrays that no filter sees."""

from __future__ import annotations

import numpy as np

from flanders.hosts.model_arrays import HostArrays
from flanders.hosts.unscored import far_clients, largest_difference

MODEL = {"w": np.ones(2, np.float32), "n.running_mean": np.zeros(2, np.float32), "count": np.asarray(4)}
PLACES = [place for place in HostArrays.of(MODEL).arrays if not place.scored]


def test_a_client_is_far_off_if_it_is_fifty_times_as_far_as_the_median() -> None:
    away = {"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [49.0, 199.0], "d": [51.0, 1.0], "e": [1.0, 201.0]}
    far = far_clients(PLACES, MODEL, away)
    assert set(far) == {"d", "e"}  # a counter of 4 may grow by 50 times its size
    assert far["d"] == "array 'n.running_mean' changes 51 times as much as usual"


def test_an_array_that_most_clients_leave_at_zero_may_not_change() -> None:
    far = far_clients(PLACES, MODEL, {"a": [0.0, 1.0], "b": [0.0, 1.0], "c": [0.1, 1.0]})
    assert far == {"c": "array 'n.running_mean' changes, though most clients leave it at zero"}


def test_without_replies_or_such_arrays_nobody_is_far_off() -> None:
    assert far_clients(PLACES, MODEL, {}) == {}
    assert far_clients([], MODEL, {"a": []}) == {}


def test_the_largest_difference_of_the_largest_integers_is_finite() -> None:
    assert largest_difference(np.asarray(2**62), np.asarray(-(2**62))) == 2.0**63
    assert largest_difference(np.zeros(0), np.zeros(0)) == 0
