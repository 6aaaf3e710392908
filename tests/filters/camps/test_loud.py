"""Updates that are many times longer than training makes them."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, Guard

D = 400


def updates(clients, number, seed=0):
    """Clients that move the way everyone does, their own way, and a little at random."""
    fixed, rng = np.random.default_rng(seed), np.random.default_rng([seed, number])
    common, own = fixed.normal(size=D), fixed.normal(size=(clients, D))
    return 0.95**number * (common + own + 0.5 * rng.normal(size=(clients, D)))


def protected(clients, rounds, change):
    """Return the outcome of the last round, in which `change` is applied to the updates."""
    defense = Defense(Guard(), seed=0)
    for number in range(1, rounds + 1):
        sent = updates(clients, number)
        if number == rounds:
            sent = change(sent)
        outcome = defense(sent, global_model=np.zeros(D))
    return outcome


@pytest.mark.parametrize(("clients", "loud"), [(3, 2), (5, 3), (20, 12)])
def test_most_of_a_few_known_clients_may_turn_loud_and_are_dropped(clients, loud):
    outcome = protected(clients, 4, lambda sent: np.vstack([1000 * sent[:loud], sent[loud:]]))
    assert outcome.dropped == tuple(range(loud))
    assert "times as long as expected" in outcome.reasons[0]


def test_a_loud_minority_is_dropped_in_the_first_round():
    outcome = protected(5, 1, lambda sent: np.vstack([1000 * sent[:2], sent[2:]]))
    assert outcome.dropped == (0, 1)


def test_tiny_updates_in_a_small_first_round_do_not_make_all_others_loud():
    defense = Defense(Guard(), seed=0)
    for number, m in ((1, 3), (2, 20)):
        sent = updates(20, number)[:m]
        sent[:2] *= 1e-10
        outcome = defense(sent, global_model=np.zeros(D))
    assert outcome.dropped == (0, 1)


def test_if_all_updates_become_longer_nobody_is_called_loud():
    assert protected(8, 4, lambda sent: 1000 * sent).dropped == ()


def test_clients_that_send_nothing_are_not_compared():
    outcome = protected(8, 1, lambda sent: np.vstack([0 * sent[:5], sent[5:]]))
    assert outcome.dropped == ()


@pytest.mark.parametrize(("clients", "long"), [(3, 1), (4, 1), (5, 1), (10, 4), (20, 8), (100, 30)])
@pytest.mark.parametrize("rounds", [1, 4])
def test_a_minority_that_sends_more_than_three_times_the_length_of_the_others_is_dropped(clients, long, rounds):
    outcome = protected(clients, rounds, lambda sent: np.vstack([5 * sent[:long], sent[long:]]))
    assert outcome.dropped == tuple(range(long))


@pytest.mark.parametrize(("examples", "dropped"), [(10, (0, 1, 2, 3)), (100, ())])
def test_a_client_with_more_examples_may_send_a_longer_update(examples, dropped):
    sent, weights = updates(20, 1), np.where(np.arange(20) < 4, examples, 10)
    outcome = Defense(Guard())(np.vstack([8 * sent[:4], sent[4:]]), weights=weights, global_model=np.zeros(D))
    assert outcome.dropped == dropped


def test_twice_the_length_of_the_others_is_allowed():
    assert protected(20, 1, lambda sent: np.vstack([2 * sent[:4], sent[4:]])).dropped == ()


def test_where_lengths_differ_much_a_long_update_is_nothing_special():
    spread = np.exp(np.random.default_rng(1).normal(size=(20, 1)))
    assert protected(20, 1, lambda sent: spread * sent).dropped == ()


def test_short_updates_of_a_majority_do_not_make_the_others_look_long():
    assert set(protected(20, 4, lambda sent: np.vstack([sent[:8], 0.1 * sent[8:]])).dropped).isdisjoint(range(8))


def test_long_updates_without_which_the_losses_rise_are_kept():
    sent = np.vstack([5 * updates(20, 1)[:4], updates(20, 1)[4:]])
    kept_by = {"needed": lambda model: -float(model @ sent[:4].mean(axis=0)), "not needed": lambda model: 1.0}
    for name, evaluate in kept_by.items():
        dropped = Defense(Guard(), evaluate=evaluate)(sent, global_model=np.zeros(D)).dropped
        assert dropped == (() if name == "needed" else (0, 1, 2, 3))
