from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import Opt, OptTrimmedMean, View
from flanders.attacks.crafting import simulated_copies
from flanders.linalg.neighbours import krum_scores
from flanders.linalg.products import squared_distances


def line_view(b: int, *benign: float) -> View:
    """Return a round of one parameter, with the global model at 0."""
    rows = np.array(benign)[:, None]
    return View(np.zeros((b, 1)), np.zeros(1), num_clients=b + len(benign), benign=rows)


def test_opt_starts_at_the_bound_of_the_paper_and_keeps_it_if_krum_falls_for_it() -> None:
    # One nearest neighbour: the copies have each other. sqrt(1 / 1) + 3 = 4.
    np.testing.assert_allclose(Opt()(line_view(2, 1.0, 2.0, 3.0)), [[-4.0], [-4.0]])


def test_opt_halves_until_krum_picks_it() -> None:
    # Three neighbours. The honest 3 has 1 + 1 + 4 = 6; a malicious -l has 0 + 0 + (1 + l)^2, which is 8.2 at
    # the second half of sqrt(6 / 1) + 5, and 3.7 at the third (where the honest 1 has 1 + 2 * 3.7).
    rows = Opt()(line_view(3, 1.0, 2.0, 3.0, 4.0, 5.0))
    np.testing.assert_allclose(rows, np.full((3, 1), -(np.sqrt(6) + 5) / 8))


def test_opt_stops_at_tau_if_krum_never_picks_it() -> None:
    # Alone at -l it has at least 1 + 4 + 9 > 6.
    strength = -Opt(tau=1e-5)(line_view(1, 1.0, 2.0, 3.0, 4.0, 5.0))[0, 0]
    assert strength == pytest.approx((np.sqrt(2) + 5) / 2**20)
    assert 0.5e-5 < strength <= 1e-5


def test_opt_leaves_parameters_alone_that_nobody_moved() -> None:
    g = np.array([1.0, 0.3, 2.0])
    benign = g + np.array([[0.1, 0.0, -0.2], [0.2, 0.0, -0.1], [0.3, 0.0, -0.2]])
    moved = Opt()(View(benign[:2], g, num_clients=5, benign=benign))[0] - g
    assert moved[1] == 0
    assert moved[0] == pytest.approx(-moved[2])
    assert moved[0] < 0


@pytest.mark.parametrize("seed", range(5))
def test_krum_picks_an_opt_attacker_wherever_it_stands_in_the_round(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, b, d = 20, 8, 30
    g = rng.normal(size=d)
    models = g + 1 + rng.normal(size=(m, d))
    rows = Opt()(View(models[:b], g, num_clients=m, benign=models[b:]))
    assert np.linalg.norm(rows[0] - g) > 0.1
    order = rng.permutation(m)
    sent = np.vstack([rows, models[b:]])[order]
    assert order[np.argmin(krum_scores(squared_distances(sent), b))] < b


def test_an_attacker_who_sees_its_own_models_only_keeps_the_rounds_proportion() -> None:
    own, g = np.random.default_rng(0).normal(size=(20, 4)), np.zeros(4)
    assert simulated_copies(View(own, g, num_clients=100)) == 5  # 20 of 100 as 5 of 25
    assert simulated_copies(View(own, g, num_clients=25)) == 20  # never more than it has
    assert simulated_copies(View(own, g, num_clients=20)) == 20
    assert simulated_copies(View(own, g, num_clients=22, benign=own[:2])) == 20


def test_opt_trimmed_mean_stays_within_a_factor_outside_the_honest_range() -> None:
    #                   grows, + | grows, -  | falls, + | falls, - | stays
    low = np.array([2.0, -3.0, 2.0, -3.0, 5.0])
    high = np.array([3.0, -2.0, 3.0, -2.0, 5.0])
    g = np.array([1.0, -4.0, 4.0, -1.0, 5.0])
    view = View(np.zeros((500, 5)), g, num_clients=502, benign=np.vstack([low, high]))
    rows = OptTrimmedMean()(view, np.random.default_rng(0))
    lower, upper = np.array([1.0, -6.0, 3.0, -2.0, 5.0]), np.array([2.0, -3.0, 6.0, -1.0, 5.0])
    assert np.all(rows >= lower)
    assert np.all(rows <= upper)
    np.testing.assert_allclose(rows.mean(axis=0), (lower + upper) / 2, atol=0.2)
    assert np.all(np.ptp(rows, axis=0)[:4] > 0.9 * (upper - lower)[:4])  # each client draws its own


def test_opt_trimmed_mean_with_factor_one_sits_on_the_edge_of_the_range() -> None:
    view = View(np.zeros((2, 1)), np.zeros(1), num_clients=4, benign=np.array([[2.0], [3.0]]))
    assert np.array_equal(OptTrimmedMean(factor=1)(view), [[2.0], [2.0]])


def test_opt_plays_its_own_models_against_as_many_copies_as_the_round_has_for_them() -> None:
    own = np.array([1.0, 2.0, 3.0, 4.0, 5.0])[:, None]
    alone = Opt()(View(own, np.zeros(1), num_clients=15))  # 5 of 15, as 2 copies beside its 5
    assert alone[0] == Opt()(line_view(2, *own[:, 0]))[0]
    assert alone[0] != Opt()(line_view(5, *own[:, 0]))[0]


def test_opt_trimmed_mean_leaves_a_parameter_alone_whose_honest_mean_stayed() -> None:
    view = View(np.zeros((2, 2)), np.array([5.0, 5.0]), num_clients=4, benign=np.array([[4.0, 6.0], [6.0, 7.0]]))
    rows = OptTrimmedMean()(view, np.random.default_rng(0))
    np.testing.assert_array_equal(rows[:, 0], 5.0)
    assert np.all(rows[:, 1] != 5.0)
