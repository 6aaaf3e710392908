"""Averages for each client over rounds."""

from __future__ import annotations

import numpy as np
import pytest

from flanders.client_memory import FEWEST_REMEMBERED
from flanders.filters.camps.averages import ClientAverages

ONE = np.ones(1)


def test_a_client_that_is_hardly_known_is_near_zero():
    new = ClientAverages().of(("a",), np.array([[-0.8]]), 0.1 * ONE, prior=0.3)
    assert new == pytest.approx(-0.2)
    known = ClientAverages().with_round(("a",), np.array([[-0.8]]), 100 * ONE)
    assert known.of(("a",), np.array([[-0.8]]), 0.1 * ONE, prior=0.3) == pytest.approx(-0.8, abs=0.01)


def test_a_round_without_weight_changes_nothing_for_known_clients():
    known = ClientAverages().with_round(("a",), np.array([[0.5]]), ONE)
    assert known.of(("a", "b"), np.array([[-1.0], [-1.0]]), 0 * ONE).ravel().tolist() == [0.5, -1.0]


def test_made_up_ids_do_not_fill_the_memory():
    known = ClientAverages()
    for number in range(30):
        known = known.with_round(tuple(f"{number}-{k}" for k in range(4)), np.zeros((4, 1)), ONE)
    assert len(known.sums) == FEWEST_REMEMBERED
    assert list(known.sums)[-1] == "29-3"


def test_another_number_of_parts_starts_afresh():
    known = ClientAverages().with_round(("a",), np.array([[0.5, 0.5]]), np.ones(2))
    assert known.of(("a",), np.array([[-1.0]]), ONE).tolist() == [[-1.0]]
