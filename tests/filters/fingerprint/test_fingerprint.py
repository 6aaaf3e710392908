from __future__ import annotations

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from flanders import Defense, FedAvg, Fingerprint, Median
from flanders.checks import InputError
from flanders.filters.fingerprint.decision import typical_level
from flanders.filters.fingerprint.memory import Signatures
from flanders.filters.fingerprint.questions import (
    NOVELTY,
    apartness,
    ask_questions,
    novelty,
    novelty_in_few_parameters,
    originality,
    standing_out,
)
from flanders.round import Round
from flanders.state import load_state, save_state

D = 400


class Federation:
    """Clients that move the way everyone does, their own way, and a little at random."""

    def __init__(self, clients=40, seed=0):
        self.rng = np.random.default_rng(seed)
        self.crowd = self.rng.normal(size=D)
        self.own = self.rng.normal(size=(clients, D))
        self.model = np.zeros(D)
        self.number = 0

    def updates(self):
        self.number += 1
        common = self.crowd + 0.3 * self.rng.normal(size=D)
        noise = 0.5 * self.rng.normal(size=self.own.shape)
        return self.model + 0.95**self.number * (common + self.own + noise)


def attacked(attack, rounds=8, fraction=0.8, clients=40, filter_=None, seed=0):
    """Run rounds with attackers from the third on, other ones each time; return dropped and malicious, by round."""
    federation, found = Federation(clients, seed), []
    defense = Defense(filter_ or Fingerprint(), seed=0)
    for number in range(1, rounds + 1):
        updates, bad = federation.updates(), np.zeros(clients, dtype=bool)
        if number >= 3 and attack is not None:
            bad[federation.rng.choice(clients, int(fraction * clients), replace=False)] = True
            updates = attack(updates.copy(), bad, federation)
        outcome = defense(updates, global_model=federation.model)
        dropped = np.isin(np.arange(clients), outcome.dropped)
        federation.model = outcome.model
        found.append((dropped, bad))
    return found


def rates(found):
    dropped, bad = (np.concatenate(part) for part in zip(*found, strict=True))
    return (dropped & bad).sum() / max(1, bad.sum()), (dropped & ~bad).sum() / (~bad).sum()


def everyone_sends_the_reversed_mean(updates, bad, federation):
    updates[bad] = federation.model - (updates[~bad].mean(axis=0) - federation.model)
    return updates


def everyone_sends_the_honest_mean(updates, bad, federation):
    updates[bad] = updates[~bad].mean(axis=0)
    return updates


def everyone_turns_their_own_step(updates, bad, federation):
    updates[bad] = 2 * federation.model - updates[bad]
    return updates


def everyone_adds_noise(updates, bad, federation):
    updates[bad] += federation.rng.normal(0, 10, updates[bad].shape)
    return updates


def everyone_sends_somebody_elses(updates, bad, federation):
    updates[bad] = updates[np.roll(np.flatnonzero(bad), 1)]
    return updates


def everyone_boosts_their_own_step(updates, bad, federation):
    updates[bad] = federation.model + 3 * (updates[bad] - federation.model)
    return updates


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.8])
@pytest.mark.parametrize(
    "attack",
    [
        everyone_sends_the_reversed_mean,
        everyone_sends_the_honest_mean,
        everyone_turns_their_own_step,
        everyone_adds_noise,
        everyone_sends_somebody_elses,
        everyone_boosts_their_own_step,
    ],
)
def test_attackers_are_dropped_without_knowing_how_many_there_are(attack, fraction):
    caught, honest_lost = rates(attacked(attack, fraction=fraction))
    assert caught >= 0.95
    assert honest_lost <= 0.02


def test_honest_clients_stay_when_the_same_ones_attack_all_the_time(monkeypatch):
    """The fewer are accepted, the more their new marks differ from the old ones of those who are not."""
    monkeypatch.setattr(sys.modules[__name__], "D", 20_000)

    def most_turn_their_own_step(updates, bad, federation):
        bad[:] = np.arange(bad.size) < 32
        return everyone_turns_their_own_step(updates, bad, federation)

    caught, honest_lost = rates(attacked(most_turn_their_own_step))
    assert caught == 1
    assert honest_lost <= 0.02


def test_without_attackers_hardly_anybody_is_dropped():
    assert rates(attacked(None, rounds=25))[1] <= 0.01


def test_a_client_that_attackers_copy_is_kept():
    def all_copy_client_0(updates, bad, federation):
        bad[0] = False
        updates[bad] = updates[0]
        return updates

    found = attacked(all_copy_client_0, fraction=0.5)
    assert not any(dropped[0] for dropped, _ in found)
    assert rates(found)[0] >= 0.95


@pytest.mark.parametrize("together", [False, True])
def test_a_model_that_fits_its_sender_half_passes_only_if_nobody_else_sends_it(together):
    def send(updates, bad, federation):
        first, mean = np.flatnonzero(bad)[0], updates[~bad].mean(axis=0)
        bad[:] &= together | (np.arange(bad.size) == first)
        step = mean + 0.5 * (updates[first] - mean) - federation.model
        own = np.linalg.norm(updates[first] - federation.model)
        updates[bad] = federation.model + step * own / np.linalg.norm(step)
        return updates

    dropped, bad = attacked(send, rounds=3, fraction=0.5)[-1]
    assert dropped[bad].all() == dropped[bad].any() == together


def test_a_smaller_allowed_rate_drops_fewer():
    def slightly_off(updates, bad, federation):
        updates[bad] += 0.5 * federation.rng.normal(size=updates[bad].shape)
        return updates

    strict, lax = (
        sum(d.sum() for d, _ in attacked(slightly_off, filter_=Fingerprint(max_false_positive_rate=rate)))
        for rate in (1e-6, 0.2)
    )
    assert strict < lax


def test_too_few_survivors_leave_the_model_as_it_is_and_say_so(caplog):
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    outcome = defense(federation.model + 100 * federation.rng.normal(size=(40, D)), global_model=federation.model)
    assert outcome.kept.size == 0
    assert np.array_equal(outcome.model, federation.model)
    assert "the global model stays" in outcome.note
    assert outcome.state.signatures.failures == 1


def test_when_the_clients_have_changed_for_good_they_are_accepted_again_after_a_while():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    federation.own = 3 * federation.rng.normal(size=federation.own.shape)
    kept = [defense(federation.updates(), global_model=federation.model).kept.size for _ in range(30)]
    assert kept[0] < 10
    assert kept[-1] >= 36


def test_a_newcomer_is_judged_by_the_crowd():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates()[:30], global_model=federation.model).model
    updates = federation.updates()
    updates[30:35] = 2 * federation.model - updates[30:35]
    outcome = defense(updates, global_model=federation.model)
    assert set(outcome.dropped) == set(range(30, 35))


def test_newcomers_may_be_of_a_kind_that_few_clients_are_of():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    long = np.arange(40) % 6 == 0  # they take twice as many steps
    for number in range(1, 7):
        updates = federation.updates()
        updates[long] = federation.model + 2 * (updates[long] - federation.model)
        present = np.flatnonzero(np.arange(40) < (30 if number < 5 else 40))
        if number == 6:
            updates[39] = federation.model + 8 * (updates[39] - federation.model)
        outcome = defense(updates[present], present.tolist(), global_model=federation.model)
        federation.model = outcome.model
        assert set(outcome.dropped) == ({39} if number == 6 else set())


def test_who_sends_the_same_again_after_a_round_without_survivors_is_accepted():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    honest = federation.updates()
    reversed_ = 2 * federation.model - honest
    reversed_[:3] = honest[:3]  # fewer than a tenth
    assert len(defense(reversed_, global_model=federation.model).dropped) == 40
    assert len(defense(honest, global_model=federation.model).dropped) <= 1


def test_newcomers_cannot_have_a_client_dropped_by_copying_it():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates()[:30], global_model=federation.model).model
    updates = federation.updates()
    updates[30:] = updates[0]
    outcome = defense(updates, global_model=federation.model)
    assert set(outcome.dropped) == set(range(30, 40))


def test_everyone_alike_is_kept_in_the_first_two_rounds_and_the_fallback_rule_serves():
    federation, defense = Federation(), Defense(Fingerprint(), FedAvg(), fallback=Median(), seed=0)
    for _ in range(2):
        updates = federation.updates()
        outcome = defense(updates, global_model=federation.model)
        assert outcome.scores.provisional
        assert outcome.dropped == ()
        assert "too little is known" in outcome.note
        np.testing.assert_allclose(outcome.model, np.median(updates, axis=0))
    outcome = defense(federation.updates(), global_model=federation.model)
    assert not outcome.scores.provisional


@pytest.mark.parametrize("clients", [5, 10, 40])
def test_a_minority_that_drowns_the_others_from_the_first_round_on_is_dropped_from_then_on(clients):
    federation, defense, loud = Federation(clients), Defense(Fingerprint(), seed=0), clients * 2 // 5
    for number in range(8):
        updates = federation.updates()
        updates[:loud] = federation.model + 300 * federation.rng.normal(size=(loud, D))
        outcome = defense(updates, global_model=federation.model)
        assert set(outcome.dropped) >= set(range(loud)), number
        assert len(outcome.dropped) <= loud + 0.1 * clients, number
        if number < 2:
            assert "times the usual length" in outcome.reasons[0]
        federation.model = outcome.model


def test_how_many_times_its_usual_length_is_told_as_it_is_however_long_ago_that_was():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for number in range(9):
        updates = federation.updates()
        if number >= 3:
            updates[0] = federation.model + 100 * (updates[0] - federation.model)
        outcome = defense(updates, global_model=federation.model)
        federation.model = outcome.model
    factor = re.search(r"(\S+) times its usual length", outcome.reasons[0])
    assert float(factor[1]) == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_client_that_sends_the_global_model_back_blinds_nobody(dtype):
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    federation.model = federation.model.astype(dtype)
    for number in range(8):
        updates = federation.updates().astype(dtype)
        updates[0] = federation.model
        if number >= 4:
            updates[30:] = 2 * federation.model - updates[30:]
        outcome = defense(updates, global_model=federation.model)
        federation.model = outcome.model
        assert 0 in outcome.dropped or number < 2
        assert len(set(outcome.dropped) - {0}) == (10 if number >= 4 else 0)
    assert np.isfinite(outcome.state.signatures.marks).all()


def test_who_once_sent_nothing_is_not_held_to_it():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for number in range(6):
        updates = federation.updates()
        if number < 2:
            updates[0] = federation.model
        outcome = defense(updates, global_model=federation.model)
        federation.model = outcome.model
    assert 0 not in outcome.dropped


@pytest.mark.parametrize("scale", [1e3, 1e9])
def test_rounds_that_keep_nobody_do_not_open_the_door(scale):
    """38 of 40 clients send noise for 40 rounds. The limits widen only so far."""
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    for _ in range(40):
        updates = federation.updates()
        updates[:38] = federation.model + scale * federation.rng.normal(size=(38, D))
        outcome = defense(updates, global_model=federation.model)
        assert not set(range(38)) & set(outcome.kept.tolist())


def test_a_round_of_few_clients_makes_nobody_forgotten():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for number in range(5):
        rows = range(3) if number == 3 else range(40)
        outcome = defense(federation.updates()[list(rows)], rows, global_model=federation.model)
        federation.model = outcome.model
    assert set(outcome.state.signatures.clients) == set(range(40))


def test_however_many_rounds_fail_in_a_row_the_next_one_is_judged():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    signatures = replace(defense.state.signatures, failures=10**6)
    defense.state = replace(defense.state, signatures=signatures)
    assert defense(federation.updates(), global_model=federation.model).dropped == ()


def test_the_memory_can_be_saved_and_goes_on_to_the_same_decisions(tmp_path):
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        defense(federation.updates(), global_model=federation.model)
    save_state(tmp_path / "state.npz", defense.state)
    again = Defense(Fingerprint(), seed=0)
    again.state = load_state(tmp_path / "state.npz")
    updates = federation.updates()
    updates[:10] = -updates[:10]
    first, second = (d(updates, global_model=federation.model) for d in (defense, again))
    np.testing.assert_array_equal(first.scores.values, second.scores.values)
    assert first.dropped == second.dropped == tuple(range(10))


def test_probabilities_go_with_the_verdict():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        defense(federation.updates(), global_model=federation.model)
    updates = federation.updates()
    updates[:10] = -updates[:10]
    chance = defense(updates, global_model=federation.model).scores.probabilities
    assert chance[:10].min() > 0.95
    assert np.median(chance[10:]) < 0.2


@pytest.mark.parametrize("parameter", ["max_false_positive_rate", "min_survivors"])
def test_shares_are_from_zero_to_one(parameter):
    with pytest.raises(InputError, match=f"`{parameter}` parameter of Fingerprint must be a number from 0 to 1"):
        Fingerprint(**{parameter: 1.5})


@pytest.mark.parametrize("count", [4, 30])
def test_marks_of_the_absent_are_left_out_if_they_are_many(count):
    marks, accepted = np.arange(count * 2.0).reshape(count, 2), np.array([1] * (count - 2) + [2, 2])
    known = Signatures(tuple(range(count)), marks, accepted=accepted)
    places = np.array([count - 1, 0])
    found, at, old = known.marks_to_compare_with(places)
    np.testing.assert_array_equal(found[at], marks[places])
    np.testing.assert_array_equal(found[old:], marks[-2:])
    assert len(found) == (4 if count == 4 else 3)


def test_novelty_is_what_no_sum_of_the_remembered_directions_makes_up():
    remembered = np.array([[1.0, 0.0, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0]])
    new = np.array([[0.0, 1.0, 0.0, 0.0], [0.0, 0.6, 0.8, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found = novelty(new @ remembered.T, remembered @ remembered.T)
    np.testing.assert_allclose(found, [np.log(1e-6), np.log(0.64), 0.0], rtol=0.1, atol=1e-4)


@pytest.mark.parametrize("fraction", [0.2, 0.8])
def test_who_sends_sums_of_what_was_sent_before_is_dropped_though_it_looks_like_its_own(fraction):
    received = []

    def repeat_with_a_pull(updates, bad, federation):
        steps, pull = received[-1] if received else updates, -0.3 * federation.crowd
        updates[bad] = federation.model + 0.9 * (steps[bad] - federation.model) + pull
        received.append(updates)
        return updates

    caught, honest_lost = rates(attacked(repeat_with_a_pull, fraction=fraction))
    assert caught >= 0.95
    assert honest_lost <= 0.02


def pulls_aside(pull):
    """Attackers who add to their own step one that is the same for all, `pull(number)` times as long."""

    def attack(updates, bad, federation):
        aside = np.random.default_rng(7).normal(size=D)
        aside -= aside @ federation.crowd / (federation.crowd @ federation.crowd) * federation.crowd
        lengths = np.linalg.norm(updates[bad] - federation.model, axis=1, keepdims=True)
        updates[bad] += pull(federation.number) * lengths * aside / np.linalg.norm(aside)
        return updates

    return attack


def test_a_majority_that_adds_one_pull_to_its_own_steps_has_too_much_in_common():
    caught, honest_lost = rates(attacked(pulls_aside(lambda number: 0.7)))
    assert caught >= 0.95
    assert honest_lost <= 0.02


@pytest.mark.parametrize("fraction", [0.6, 0.8])
def test_a_majority_that_pulls_more_from_round_to_round_is_found_and_does_not_make_the_others_odd(fraction):
    found = attacked(pulls_aside(lambda number: min(1.5, 0.2 * (number - 2))), rounds=25, fraction=fraction)
    assert rates(found[10:])[0] >= 0.95
    assert rates(found)[1] <= 0.1


def test_what_clients_had_in_common_is_not_forgotten_while_a_majority_pulls_ever_so_slowly_more():
    found = attacked(pulls_aside(lambda number: min(1.0, 0.04 * (number - 2))), rounds=40)
    assert rates(found[25:])[0] >= 0.95


@pytest.mark.parametrize(("rounds", "accepted"), [(1, False), (20, True)])
def test_who_was_away_for_long_may_have_changed_more(rounds, accepted):
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        federation.model = defense(federation.updates(), global_model=federation.model).model
    for _ in range(rounds):
        updates = federation.updates()
        federation.model = defense(updates[1:], list(range(1, 40)), global_model=federation.model).model
    updates = federation.updates()
    updates[0] = federation.model + 1.3 * (updates[0] - federation.model)
    assert (0 not in defense(updates, global_model=federation.model).dropped) == accepted


@pytest.mark.parametrize(("clients", "lowest"), [(3, (np.inf, 1.0)), (40, (0.46, 0.01))])
def test_three_clients_say_nothing_about_what_clients_have_in_common(clients, lowest):
    federation, defense = Federation(clients), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        outcome = defense(federation.updates(), global_model=federation.model)
    assert outcome.dropped == ()
    assert outcome.state.signatures.company == pytest.approx(lowest, abs=0.02)


def test_nobody_is_dropped_when_all_have_more_in_common_than_before():
    def all_pull_together(updates, bad, federation):
        bad[:] = False
        pull = 0.1 * (federation.number - 2) * federation.crowd
        return updates + 0.95**federation.number * pull

    assert rates(attacked(all_pull_together, rounds=12, fraction=0.0))[1] <= 0.02


def test_standing_out_counts_deviations_above_the_others_of_the_row():
    among = np.array([[9.0, 1.0, 2.0, 3.0], [0.0, 0.0, 1.0, 2.0], [1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 2.0]])
    np.testing.assert_allclose(standing_out(among), [7.0, -1.0, 0.0, 0.0])
    assert np.isnan(standing_out(np.eye(3))).all()


def test_only_clients_with_a_clearer_fingerprint_make_a_copy_of_one():
    cosines = np.array([[1.0, 0.9, 0.2], [0.9, 1.0, 0.1], [0.2, 0.1, 1.0]])
    lengths = np.array([1.0, 2.0, 3.0])
    apart = apartness(cosines * np.outer(lengths, lengths))
    np.testing.assert_allclose(apart[0], [np.inf, np.log(0.1), np.log(0.8)])
    expected = [np.nan, np.log(0.1), np.log(0.8)]
    np.testing.assert_allclose(originality(apart, np.array([5.0, 1.0, 3.0])), expected)
    np.testing.assert_allclose(originality(apart, np.array([5.0, np.nan, 3.0])), expected)


def test_what_is_typical_follows_the_honest_minority_when_the_majority_jumps():
    rng, spread = np.random.default_rng(0), np.array([0.03, 0.03])
    honest, jumped = rng.normal([-0.05, 0.0], 0.01, (20, 2)), rng.normal([0.4, -0.4], 0.01, (80, 2))
    everyone = np.vstack([honest, jumped])
    length, heading = typical_level(everyone, np.ones(100, dtype=bool), (0.0, 0.0), spread)
    assert (length, heading) == pytest.approx((-0.05, 0.0), abs=0.01)
    forced = typical_level(everyone, everyone[:, 0] > 0, (0.0, 0.0), spread)
    assert forced == pytest.approx((0.3, -0.4), abs=0.01)  # no faster than this


def test_the_outcome_says_why_a_client_was_dropped():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        defense(federation.updates(), global_model=federation.model)
    updates = federation.updates()
    updates[0] *= 4
    updates[1] = -updates[1]
    updates[2] = updates[3]
    updates[4] = np.nan
    reasons = defense(updates, global_model=federation.model).reasons
    assert set(reasons) == {0, 1, 2, 4}
    assert "4.1 times its usual length" in reasons[0]  # and the noise is not the same each time
    for reason in ("heading away from the others", "not its own fingerprint"):
        assert reason in reasons[1]
    assert "nearly a copy of another client's" in reasons[2]
    assert reasons[4] == "values not finite, or too large"


def test_the_outcome_says_in_which_layers_an_update_is_abnormal():
    layers = {"body.weight": 300, "body.bias": 20, "head.weight": 80}
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for _ in range(4):
        defense(federation.updates(), global_model=federation.model, layers=layers)
    updates = federation.updates()
    updates[0] = -updates[0]
    updates[1, 320:] += 8 * federation.rng.normal(size=80)
    reasons = defense(updates, global_model=federation.model, layers=layers).reasons
    assert set(reasons) == {0, 1}
    assert " of the deviation in " not in reasons[0]
    assert "% of the deviation in head.weight (usually 2" in reasons[1]


def test_the_memory_is_bounded_however_many_ids_appear():
    federation, defense = Federation(), Defense(Fingerprint(), seed=0)
    for number in range(30):
        names = [f"client-{number}-{i}" if i < 20 else f"client-{i}" for i in range(40)]
        outcome = defense(federation.updates(), names, global_model=federation.model)
    signatures = outcome.state.signatures
    assert len(signatures.clients) == len(signatures.usual) == signatures.marks.shape[0] == 400
    assert set(names) - set(outcome.dropped) <= set(signatures.clients)


@pytest.mark.parametrize(("n", "d"), [(60, 300), (60, 40)])
def test_novelty_is_the_same_from_products_and_from_directions(n, d):
    rng = np.random.default_rng(0)
    remembered, now = unit(rng.normal(size=(n, d))), unit(rng.normal(size=(20, d)))
    now[:3] = unit(rng.normal(size=(3, n)) @ remembered)
    now[3] = 0.0
    found = novelty_in_few_parameters(now, remembered)
    np.testing.assert_allclose(found, novelty(now @ remembered.T, remembered @ remembered.T), atol=1e-6)
    assert found[3] == 0.0


def test_rounds_of_more_clients_than_parameters_know_what_is_new():
    filter_, model = Fingerprint(), np.zeros(30)
    rng, state = np.random.default_rng(1), filter_.init()
    first, basis = Round(rng.normal(size=(40, 30)) * ([1.0] * 20 + [0.0] * 10)), np.eye(30)
    state = filter_.amend(state, first, np.arange(40), model, filter_.score(state, first))
    second = Round(np.concatenate([basis[:2], basis[-2:], rng.normal(size=(36, 30))]))
    found = ask_questions(state.signatures, second, 2).values[:, NOVELTY]
    assert (found[:2] < np.log(1e-4)).all()  # directions that the first round has shown
    assert (np.abs(found[2:4]) < 1e-4).all()  # directions that nobody has sent


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1)[:, None]
