"""The judge: the server's losses, trusted clients, the past and the majority."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import honest, mask, towards_the_common
from flanders.filters.camps.judging import Examples, Past, accused_by_past, standard_errors, wrong_camp
from flanders.round import Round


def test_the_camp_with_the_higher_losses_is_worse_whichever_is_larger():
    updates = honest(20, 1)
    updates[:14] *= -1
    round_ = Round(updates, evaluate=towards_the_common)
    turned, rest = mask(20, range(14)), mask(20, range(14, 20))
    assert Examples(round_).worse(turned, rest) > 5
    assert Examples(round_).worse(rest, turned) < -5


def test_a_single_loss_will_do():
    assert standard_errors(np.array([1.02]), np.array([1.0])) == pytest.approx(1.75)


def test_losses_that_are_not_finite_are_large_ones():
    bad = np.array([np.nan, -np.inf])
    round_ = Round(honest(6, 1), evaluate=lambda model: bad if model.any() else np.ones(2))
    assert (Examples(round_).losses(mask(6, [0])) == 1e6).all()


def test_losses_that_are_hugely_negative_can_be_compared():
    round_ = Round(honest(6, 1), evaluate=lambda model: np.full(5, -1e308))
    assert Examples(round_).worse(mask(6, [0, 1]), mask(6, [2, 3])) == 0


def test_each_mean_is_evaluated_once():
    calls = []
    round_ = Round(honest(6, 1), evaluate=lambda model: calls.append(1) or np.ones(3))
    examples = Examples(round_)
    examples.losses(mask(6, [0, 1]))
    examples.losses(mask(6, [0, 1]))
    assert len(calls) == 1


def test_trusted_clients_come_before_the_majority():
    low, high = mask(10, range(7)), mask(10, range(7, 10))
    assert wrong_camp(low, high, Past())[0] is high
    assert wrong_camp(low, high, Past(trusted=mask(10, [8])))[0] is low


def test_who_was_accepted_before_is_right():
    low, high = mask(10, range(7)), mask(10, range(7, 10))
    change = np.where(low, np.nan, 0.0)
    assert wrong_camp(low, high, Past(changes=(change,)))[0] is low


def test_a_majority_that_turned_far_is_wrong():
    low, high = mask(20, range(14)), mask(20, range(14, 20))
    assert wrong_camp(low, high, Past(changes=(np.where(low, -0.8, 0.0),)))[0] is low
    assert wrong_camp(low, high, Past(changes=(np.where(low, -0.2, 0.0),)))[0] is high


def test_the_past_of_clients_that_were_dropped_does_not_count_against_a_majority():
    low, high = mask(20, range(14)), mask(20, range(14, 20))
    changes = (np.where(low, -0.8, 0.0),)
    assert wrong_camp(low, high, Past(changes=changes, dropped=high))[0] is high
    assert wrong_camp(low, high, Past(changes=changes, dropped=mask(20, range(14, 17))))[0] is low
    # If attackers take turns, clients of both camps were dropped before.
    assert wrong_camp(low, high, Past(changes=changes, dropped=mask(20, [*range(10), *range(14, 19)])))[0] is low


def test_nobody_can_tell_two_halves_apart():
    low, high = mask(20, range(10)), mask(20, range(10, 20))
    assert wrong_camp(low, high, Past()) == (None, "two camps of about the same size")
    assert accused_by_past(mask(20, range(3)), mask(20, range(3, 20)), Past())[0] is None  # the majority says it


def test_a_few_clients_that_were_accepted_cannot_outweigh_many_new_ones():
    few, many = mask(40, range(4)), mask(40, range(4, 40))
    assert wrong_camp(few, many, Past(changes=(np.where(few, 0.0, np.nan),)))[0] is few


def test_the_camp_with_more_of_the_clients_that_were_accepted_is_not_outweighed():
    attackers, honest_ = mask(40, range(8)), mask(40, range(8, 40))
    changes = (np.where(mask(40, range(20)), 0.0, np.nan),)  # 8 of 8 and 12 of 32 were accepted
    assert wrong_camp(attackers, honest_, Past(changes=changes))[0] is attackers
