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


def test_if_all_updates_become_longer_nobody_is_called_loud():
    assert protected(8, 4, lambda sent: 1000 * sent).dropped == ()


def test_clients_that_send_nothing_are_not_compared():
    outcome = protected(8, 1, lambda sent: np.vstack([0 * sent[:5], sent[5:]]))
    assert outcome.dropped == ()
