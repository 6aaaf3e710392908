"""`Guard` drops crafted updates, wrong camps, and clients that are unlike their own past."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch

from filters.camps.federation import LAYERS, D, honest, towards_the_common, turned
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.filters import Camps, Guard
from flanders.filters.fingerprint.fingerprint import FingerprintState
from flanders.round import Round
from flanders.state import load_state, save_state, state_to_bytes


def test_turned_updates_are_dropped_in_the_first_round():
    outcome = Defense(Guard())(turned(40, 8, 1), layers=LAYERS)
    assert outcome.dropped == tuple(range(8))
    assert all("others" in outcome.reasons[client] for client in range(8))


def test_honest_clients_stay():
    defense = Defense(Guard())
    for seed in range(8):
        outcome = defense(honest(40, seed), layers=LAYERS, global_model=np.zeros(D))
        assert not outcome.dropped


def test_a_majority_of_copies_is_dropped_in_the_first_round():
    updates = honest(30, 1)
    updates[:24] = -updates[:24].mean(axis=0)
    assert Defense(Guard())(updates).dropped == tuple(range(24))


def test_the_servers_examples_find_the_honest_minority():
    updates = turned(40, 30, 1)
    assert Defense(Guard())(updates, layers=LAYERS).dropped == tuple(range(30, 40))
    judged = Defense(Guard(), evaluate=towards_the_common)(updates, layers=LAYERS)
    assert judged.dropped == tuple(range(30))
    assert "standard errors" in judged.reasons[0]


def test_a_server_that_gives_one_number_is_a_judge_too():
    defense = Defense(Guard(), evaluate=lambda model: float(towards_the_common(model).mean()))
    assert defense(turned(40, 30, 1), layers=LAYERS).dropped == tuple(range(30))


@pytest.mark.parametrize("b", [1, 2, 3])
def test_clients_that_behave_well_once_cannot_rule_over_new_clients(b):
    defense = Defense(Guard())
    for number in range(4):
        names = [f"attacker {i}" for i in range(b)] + [f"client {number}-{i}" for i in range(20 - b)]
        updates = turned(20, b if number else 0, number)
        outcome = defense(updates, names, layers=LAYERS, global_model=np.zeros(D))
        assert outcome.kept.tolist() == list(range(b if number else 0, 20))


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("b", [2, 4])
def test_clients_that_ignore_a_new_learning_rate_do_not_rule_over_the_others(b, factor):
    defense = Defense(Guard())
    for number in range(8):
        updates = honest(20, number)
        if number >= 5:
            updates[b:] *= factor
        outcome = defense(updates, layers=LAYERS, global_model=np.zeros(D))
        assert set(range(b, 20)) <= set(outcome.kept.tolist())


@pytest.mark.parametrize(("sign", "kept"), [(1, set(range(2, 40))), (-1, set())])
def test_two_clients_that_know_more_cannot_stop_a_round_that_improves_the_model(sign, kept):
    updates = sign * honest(40, 1) / 30
    updates[:2] = honest(40, 2, alpha=5.0)[:2]
    outcome = Defense(Guard(), evaluate=towards_the_common)(updates, layers=LAYERS)
    assert set(outcome.kept.tolist()) - {0, 1} == kept


@pytest.mark.parametrize("trusted", ["site-1", 3, None, [[1]], [1.5], [True], [None], b"ab"])
def test_trusted_clients_are_a_list_of_ids(trusted):
    with pytest.raises(InputError, match="`trusted` parameter of Guard must be a list of the ids of clients"):
        Guard(trusted=trusted)


def test_known_clients_are_not_outvoted_by_a_flood_of_new_ones():
    defense = Defense(Guard())
    for number in range(3):
        defense(honest(10, number), layers=LAYERS, global_model=np.zeros(D))
    outcome = defense(turned(40, 28, 7)[::-1], layers=LAYERS, global_model=np.zeros(D))
    assert outcome.dropped == tuple(range(12, 40))


@pytest.mark.parametrize("few", [[18, 19], [0, 18, 19], [16, 17, 18]])
@pytest.mark.parametrize("factor", [1e-10, -1.0])
def test_attackers_alone_in_a_small_round_cannot_speak_against_everybody_later(few, factor):
    defense, attackers = Defense(Guard()), [16, 17, 18, 19]
    for number in range(8):
        updates = honest(20, number, alpha=5.0)
        if number >= 4:
            updates[attackers] *= factor
        names = few if number == 4 else list(range(20))
        outcome = defense(updates[names], names, layers=LAYERS, global_model=np.zeros(D))
        assert number == 4 or set(outcome.kept.tolist()) >= set(range(16))


def test_a_federation_that_has_shrunk_is_learnt_from_again():
    defense = Defense(Guard())
    for number in range(34):
        m = 20 if number < 2 else 6
        defense(honest(m, number), layers=LAYERS, global_model=np.zeros(D))
        assert defense.state.round_number == number + 1
        assert defense.state.signatures.newest == (20 if number < 32 else 6)


def test_who_turns_later_is_found_by_its_own_past_even_as_a_majority():
    defense = Defense(Guard())
    for seed in range(3):
        assert not defense(turned(40, 0, seed), layers=LAYERS, global_model=np.zeros(D)).dropped
    outcome = defense(turned(40, 30, 7), layers=LAYERS, global_model=np.zeros(D))
    assert outcome.dropped == tuple(range(30))


def test_on_doubt_everybody_is_kept_or_the_model_stays(caplog):
    updates = turned(40, 20, 1)
    assert Defense(Guard())(updates, layers=LAYERS).kept.size == 40
    assert "two camps of about the same size" in caplog.text
    stayed = Defense(Guard(on_doubt="stay"))(updates, layers=LAYERS, global_model=np.zeros(D))
    assert stayed.kept.size == 0
    assert np.array_equal(stayed.model, np.zeros(D))


def test_trusted_clients_tell_two_halves_apart():
    updates = turned(40, 20, 1)
    assert Defense(Guard(trusted=(25,)))(updates, layers=LAYERS).dropped == tuple(range(20))


def test_too_few_survivors_are_not_enough():
    updates = honest(30, 1)
    updates[:28] = -updates.mean(axis=0)
    assert Defense(Guard())(updates).kept.size == 0
    assert Defense(Guard(min_survivors=0.0))(updates).kept.size == 2


def test_its_memory_survives_a_restart(tmp_path):
    whole, first = Defense(Guard(), seed=0), Defense(Guard(), seed=0)
    for seed in range(2):
        for defense in (whole, first):
            defense(honest(12, seed), layers=LAYERS, global_model=np.zeros(D))
    save_state(tmp_path / "state", first.state)
    second = Defense(Guard(), seed=0)
    second.state = load_state(tmp_path / "state", like=np.zeros(D))
    updates = honest(12, 5)
    updates[:3] *= -1
    outcomes = [d(updates, layers=LAYERS, global_model=np.zeros(D)) for d in (whole, second)]
    assert outcomes[0].dropped == outcomes[1].dropped
    assert np.array_equal(outcomes[0].scores.values, outcomes[1].scores.values)


def test_tensors_are_judged_as_arrays_are():
    updates = turned(40, 8, 1)
    array = Defense(Guard())(updates, layers=LAYERS)
    tensor = Defense(Guard())(torch.from_numpy(updates), layers=LAYERS)
    assert tensor.dropped == array.dropped
    assert np.allclose(tensor.scores.values, array.scores.values)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_tiny_rounds_are_kept(m):
    defense = Defense(Guard())
    for seed in range(3):
        assert defense(honest(m, seed), global_model=np.zeros(D)).kept.size == m


def test_clients_that_did_not_move_are_no_copies():
    updates = honest(12, 1)
    updates[:3] = 0.0
    assert not set(Defense(Guard())(updates, global_model=np.zeros(D)).dropped) & {3, 4, 5, 6}


def test_what_it_cannot_use_is_refused():
    with pytest.raises(InputError, match="on_doubt"):
        Guard(on_doubt="guess")
    with pytest.raises(InputError, match="evaluate"):
        Round(honest(3, 0), evaluate=3)


def test_a_reason_names_the_trait_the_camp_the_evidence_and_the_witness():
    reason = Defense(Guard())(turned(60, 20, 1), layers=LAYERS).reasons[0]
    assert re.fullmatch(
        r"(away from|against) the others in the (last layer|first layers); the same holds for 19 other clients "
        r"\(evidence \d+ nats, needed 32\); they are the smaller camp",
        reason,
    )


def test_the_servers_losses_are_a_reason():
    outcome = Defense(Guard(), evaluate=towards_the_common)(turned(40, 30, 1), layers=LAYERS)
    assert re.search(r"; the server's losses are higher with them \(\d+\.\d standard errors\)$", outcome.reasons[0])
    assert outcome.scores.note == ""


def test_a_copy_is_told_that_it_is_one():
    updates = honest(30, 1)
    updates[:3] = updates[9]
    assert Defense(Guard())(updates).reasons[1] == "a copy of another client's update, or random noise"


def test_a_round_in_doubt_says_so_once_and_says_what_helps(caplog):
    outcome = Defense(Guard())(turned(60, 30, 1))
    note = "two camps of about the same size (by main direction), and nothing tells which one is wrong"
    assert outcome.scores.note == note
    assert note in outcome.note
    assert caplog.text.count(note) == 1
    assert "Defense(evaluate=...)" in caplog.text
    assert "Guard(trusted=...)" in caplog.text


def test_a_model_that_stays_in_doubt_tells_each_client_why(caplog):
    start = np.ones(D)
    outcome = Defense(Guard(on_doubt="stay"))(turned(60, 30, 1) + start, global_model=start)
    assert "two camps of about the same size" in caplog.text
    assert set(outcome.reasons.values()) == {
        "two camps of about the same size, and nothing tells which one is wrong"
    }
    assert "two camps of about the same size" in outcome.scores.note
    assert np.array_equal(outcome.model, start)


def test_examples_end_the_doubt(caplog):
    defense = Defense(Guard(on_doubt="stay"), evaluate=towards_the_common)
    outcome = defense(turned(60, 30, 1), layers={"all": D})
    assert outcome.dropped == tuple(range(30))
    assert not caplog.records


@pytest.mark.parametrize("filter_", [Guard(), Camps()])
def test_the_memory_of_another_filter_is_refused(filter_):
    round_, name = Round(honest(6, 0)), type(filter_).__name__
    with pytest.raises(InputError, match=f"{name} needs a GuardState"):
        filter_.score(FingerprintState(), round_)
    with pytest.raises(InputError, match=f"{name} needs a GuardState"):
        filter_.amend(FingerprintState(), round_, np.arange(6), round_.global_model)


@pytest.mark.parametrize("filter_", [Guard(), Camps()])
def test_a_round_is_remembered_alike_with_and_without_its_scores(filter_):
    state, round_ = filter_.init(), Round(honest(12, 0), layers=LAYERS)
    scores, kept = filter_.score(state, round_), np.arange(12)
    foreign = dataclasses.replace(scores, evidence="of another filter")
    after = [filter_.amend(state, round_, kept, round_.global_model, each) for each in (scores, None, foreign)]
    assert len({state_to_bytes(each) for each in after}) == 1


def test_layers_may_be_given_in_some_rounds_only():
    defense = Defense(Guard())
    for seed, layers in enumerate([LAYERS, None, LAYERS, LAYERS, None, None]):
        assert not defense(turned(40, 0, seed), layers=layers, global_model=np.zeros(D)).dropped
    assert defense(turned(40, 30, 9), global_model=np.zeros(D)).dropped == tuple(range(30))
