from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flanders.attacks import BlindSpot, Budget, View

RNG = np.random.default_rng(0)


def test_blind_spot_is_honest_where_the_server_looks_and_poisoned_elsewhere() -> None:
    view = View(
        own=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        global_model=np.array([1.0, 1.0, 1.0]),
        num_clients=4,
        benign=np.array([[2.0, 3.0, 4.0], [2.0, 5.0, 4.0]]),  # mean step (1, 3, 3)
        server_columns=np.array([1, 1]),
    )
    assert np.array_equal(BlindSpot(scale=2.0)(view), [[-1.0, 2.0, -5.0], [-1.0, 5.0, -5.0]])


def test_blind_spot_is_honest_where_it_knows_of_none() -> None:
    view = View(np.array([[1.0, 2.0]]), np.zeros(2), num_clients=4)
    assert np.array_equal(BlindSpot()(view), view.own)
    assert np.array_equal(BlindSpot()(replace(view, server_columns=np.arange(2))), view.own)
    assert np.array_equal(BlindSpot()(replace(view, server_columns=np.array([], dtype=int))), -view.own)


def test_budget_repeats_the_last_step_with_a_pull_of_a_fixed_direction() -> None:
    attack = Budget(rho=0.9, c=0.3)
    view = View(np.array([[3.0, 4.0]]), np.zeros(2), num_clients=4)
    first = attack.craft(view, RNG)  # 0.9 (3, 4) + 0.3 * 5 * (-0.6, -0.8)
    np.testing.assert_allclose(first, [[1.8, 2.4]])
    later = View(
        np.array([[-50.0, 50.0]]), np.ones(2), num_clients=4, memory=attack.remember(view, first)
    )  # what it trained this round plays no part
    np.testing.assert_allclose(attack.craft(later, RNG), [[1 + 1.62 - 0.54, 1 + 2.16 - 0.72]])


def test_budget_deviates_from_the_continued_step_by_its_share_of_the_length() -> None:
    rng = np.random.default_rng(1)
    attack, memory, g = Budget(), None, rng.normal(size=30)
    previous = None
    for _ in range(4):
        view = View(g + rng.normal(size=(3, 30)), g, num_clients=9, memory=memory)
        sent = attack.craft(view, rng)
        if previous is not None:
            deviation = np.linalg.norm(sent - g - 0.9 * previous, axis=1)
            np.testing.assert_allclose(deviation, 0.3 * np.linalg.norm(previous, axis=1))
        previous, memory = sent - g, attack.remember(view, sent)
        g = g + rng.normal(size=30)


def test_budget_follows_clients_that_come_and_go() -> None:
    attack, g = Budget(rho=1.0, c=0.0), np.zeros(2)
    first = View(np.array([[1.0, 0.0]]), g, 3, ("a",), np.array([[0.0, 1.0]] * 2), ("b", "c"))
    memory = attack.remember(first, np.array([[5.0, 0.0]]))
    second = View(np.array([[9.0, 9.0]]), g, 1, ("d",), memory=memory)
    memory = attack.remember(second, np.array([[7.0, 7.0]]))
    third = View(np.full((4, 2), 2.0), g, 4, ("a", "b", "d", "e"), memory=memory)
    expected = [[5.0, 0.0], [0.0, 1.0], [7.0, 7.0], [2.0, 2.0]]  # sent, seen, sent, honest
    assert np.array_equal(attack.craft(third, RNG), expected)


def test_budget_waits_for_a_direction_until_somebody_moves() -> None:
    attack = Budget()
    still = View(np.zeros((1, 2)), np.zeros(2), num_clients=2)
    memory = attack.remember(still, attack.craft(still, RNG))
    assert memory.direction is None
    moving = View(np.array([[0.0, 2.0]]), np.zeros(2), num_clients=2, memory=memory)
    assert attack.remember(moving, still.own).direction == pytest.approx([0.0, -1.0])
