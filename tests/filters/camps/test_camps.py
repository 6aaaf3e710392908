"""Camps, votes, crafted rows and their judges, and the filter that puts them together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flanders.checks import InputError
from flanders.defense import Defense
from flanders.filters import Camps, Guard
from flanders.filters.camps.crafted import crafted
from flanders.filters.camps.judging import Examples, Past, standard_errors, wrong_camp
from flanders.filters.camps.splitting import needed, split
from flanders.filters.camps.votes import Pairs, trust
from flanders.linalg.products import gram
from flanders.round import Round
from flanders.state import load_state, save_state

D = 3000
LAYERS = {"1.weight": 2900, "1.bias": 20, "2.weight": 70, "2.bias": 10}


def world(seed=0):
    """What all clients learn, what the ten classes add, and the few directions that their noise has."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=D), rng.normal(size=(10, D)), rng.normal(size=(12, D)) / 4


def honest(m, seed, alpha=0.5):
    """Displacements of clients that hold classes in uneven shares."""
    common, classes, noise = world()
    rng = np.random.default_rng(seed)
    shares = np.random.default_rng(99).dirichlet(np.full(10, alpha), size=m)
    return common + shares @ classes + rng.normal(size=(m, 12)) @ noise


def towards_the_common(model):
    """Losses of fifty examples that fall along what all clients learn."""
    away = np.random.default_rng(1).normal(size=(50, D)) * 0.2
    target = world()[0]
    return ((model + away - target) ** 2).sum(axis=1) / D


def mask(m, rows):
    return np.isin(np.arange(m), rows)


class TestSplit:
    def test_two_clusters_are_two_camps_whatever_their_sizes(self):
        rng = np.random.default_rng(0)
        for k in (5, 20, 45):
            values = rng.normal(size=50) * 0.05 + (np.arange(50) < k)
            cut = split(values, 0.02)
            assert cut.evidence > needed(50, 0.01)
            assert np.array_equal(cut.low, np.arange(50) >= k)

    @pytest.mark.parametrize("n", [8, 20, 100])
    def test_one_cluster_is_none(self, n):
        rng = np.random.default_rng(n)
        found = [split(rng.normal(size=n), 0.02).evidence for _ in range(200)]
        assert max(found) < needed(n, 0.01)

    def test_small_differences_do_not_count(self):
        values = np.array([0.0] * 10 + [0.001] * 10)
        assert split(values, 0.0001).evidence > needed(20, 0.01)
        assert split(values, 0.02).evidence < needed(20, 0.01)

    def test_too_few_values_are_not_split(self):
        assert split(np.array([0.0, 1.0, 2.0]), 0.02) is None
        assert split(np.array([0.0, 0.0, 1.0, 1.0]), 0.02, fewest=3) is None

    def test_a_lower_rate_needs_more_evidence_and_a_natural_side_less(self):
        assert needed(20, 0.001) > needed(20, 0.01) > needed(20, 0.01, natural=True)


class TestCrafted:
    def test_copies_are_found_as_a_minority_and_as_a_majority(self):
        for b in (2, 20):
            updates = honest(30, 1)
            updates[:b] = -updates.mean(axis=0)
            assert np.array_equal(crafted(gram(updates), D), np.arange(30) < b)

    @pytest.mark.parametrize("noise", [0.1, 1.0])
    def test_noise_does_not_hide_copies(self, noise):
        rng, updates = np.random.default_rng(123), honest(30, 1)
        step = updates.mean(axis=0)
        each = rng.normal(size=(12, D))
        updates[:12] = step + noise * np.linalg.norm(step) * each / np.linalg.norm(each, axis=1, keepdims=True)
        assert np.array_equal(crafted(gram(updates), D), np.arange(30) < 12)

    def test_bare_noise_is_found_and_does_not_spoil_the_others(self):
        updates = honest(30, 1)
        updates[:20] = 10 * np.random.default_rng(123).normal(size=(20, D))
        assert np.array_equal(crafted(gram(updates), D), np.arange(30) < 20)

    def test_large_rounds_are_judged_by_random_sums(self):
        rng, updates = np.random.default_rng(123), honest(300, 1)
        updates[:40] = updates.mean(axis=0) + 0.7 * rng.normal(size=(40, D))
        found = crafted(gram(updates), D)
        assert found[:40].all()
        assert found[40:].mean() < 0.01

    def test_honest_clients_are_not_crafted(self):
        for seed in range(5):
            assert not crafted(gram(honest(20, seed)), D).any()

    def test_whose_mark_a_copied_update_bears_is_its_author(self):
        updates = honest(20, 1)
        updates[:5] = updates[7]
        marks = np.zeros(20)
        marks[7] = 6.0
        assert np.array_equal(np.flatnonzero(crafted(gram(updates), D, marks)), np.arange(5))
        assert crafted(gram(updates), D)[7]


class TestVotes:
    def test_who_turns_its_update_round_is_voted_down(self):
        updates = honest(20, 1)
        updates[:4] *= -1
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        found = trust(unit @ unit.T)
        assert (found[:4] < -0.5).all()
        assert (found[4:] > 0.5).all()

    def test_the_servers_step_says_which_side_is_right_against_a_majority(self):
        updates = honest(20, 1)
        updates[:14] *= -1
        unit = updates / np.linalg.norm(updates, axis=1, keepdims=True)
        step = world()[0] / np.linalg.norm(world()[0])
        found = trust(unit @ unit.T, unit @ step)
        assert (found[:14] < -0.5).all()
        assert (found[14:] > 0.5).all()

    def test_pairs_are_averaged_by_how_much_their_rounds_agree(self):
        agree, noise = np.full((3, 3), 0.5), np.full((3, 3), 0.001)
        for cosines in (agree, noise):
            np.fill_diagonal(cosines, 1.0)
        pairs = Pairs().with_round(("a", "b", "c"), agree).with_round(("a", "b", "c"), noise)
        assert pairs.of(("b", "a", "c"))[0, 1] == pytest.approx(0.5, abs=0.001)
        assert pairs.with_round(("d",), np.ones((1, 1))).of(("a", "b")) is None


class TestJudges:
    def test_the_camp_with_the_higher_losses_is_worse_whichever_is_larger(self):
        updates = honest(20, 1)
        updates[:14] *= -1
        round_ = Round(updates, evaluate=towards_the_common)
        turned, rest = mask(20, range(14)), mask(20, range(14, 20))
        assert Examples(round_).worse(turned, rest) > 5
        assert Examples(round_).worse(rest, turned) < -5

    def test_a_single_loss_will_do(self):
        assert standard_errors(np.array([1.02]), np.array([1.0])) == pytest.approx(1.75)

    def test_losses_that_are_not_finite_are_large_ones(self):
        round_ = Round(honest(6, 1), evaluate=lambda model: np.array([np.nan, np.inf]))
        assert (Examples(round_).losses(mask(6, [0])) == 1e6).all()

    def test_each_mean_is_evaluated_once(self):
        calls = []
        round_ = Round(honest(6, 1), evaluate=lambda model: calls.append(1) or np.ones(3))
        examples = Examples(round_)
        examples.losses(mask(6, [0, 1]))
        examples.losses(mask(6, [0, 1]))
        assert len(calls) == 1

    def test_trusted_clients_come_before_the_majority(self):
        low, high = mask(10, range(7)), mask(10, range(7, 10))
        assert wrong_camp(low, high, Past())[0] is high
        assert wrong_camp(low, high, Past(trusted=mask(10, [8])))[0] is low

    def test_who_was_accepted_before_is_right(self):
        low, high = mask(10, range(7)), mask(10, range(7, 10))
        change = np.where(low, np.nan, 0.0)
        assert wrong_camp(low, high, Past(changes=(change,)))[0] is low

    def test_a_majority_that_turned_far_is_wrong(self):
        low, high = mask(20, range(14)), mask(20, range(14, 20))
        assert wrong_camp(low, high, Past(changes=(np.where(low, -0.8, 0.0),)))[0] is low
        assert wrong_camp(low, high, Past(changes=(np.where(low, -0.2, 0.0),)))[0] is high

    def test_nobody_can_tell_two_halves_apart(self):
        low, high = mask(20, range(10)), mask(20, range(10, 20))
        assert wrong_camp(low, high, Past()) == (None, "two camps of like size")
        assert wrong_camp(mask(20, range(3)), mask(20, range(3, 20)), Past(), majority=False)[0] is None


def turned(m, b, seed):
    updates = honest(m, seed, alpha=5.0)
    updates[:b] *= -1
    return updates


class TestGuard:
    def test_turned_updates_are_dropped_in_the_first_round(self):
        outcome = Defense(Guard())(turned(40, 8, 1), layers=LAYERS)
        assert outcome.dropped == tuple(range(8))
        assert all("others" in outcome.reasons[client] for client in range(8))

    def test_honest_clients_stay(self):
        defense = Defense(Guard())
        for seed in range(8):
            outcome = defense(honest(40, seed), layers=LAYERS, global_model=np.zeros(D))
            assert not outcome.dropped

    def test_a_majority_of_copies_is_dropped_in_the_first_round(self):
        updates = honest(30, 1)
        updates[:24] = -updates[:24].mean(axis=0)
        assert Defense(Guard())(updates).dropped == tuple(range(24))

    def test_the_servers_examples_find_the_honest_minority(self):
        updates = turned(40, 30, 1)
        assert Defense(Guard())(updates, layers=LAYERS).dropped == tuple(range(30, 40))
        judged = Defense(Guard(), evaluate=towards_the_common)(updates, layers=LAYERS)
        assert judged.dropped == tuple(range(30))
        assert "standard errors" in judged.reasons[0]

    def test_a_server_that_gives_one_number_is_a_judge_too(self):
        defense = Defense(Guard(), evaluate=lambda model: float(towards_the_common(model).mean()))
        assert defense(turned(40, 30, 1), layers=LAYERS).dropped == tuple(range(30))

    def test_who_turns_later_is_found_by_its_own_past_even_as_a_majority(self):
        defense = Defense(Guard())
        for seed in range(3):
            assert not defense(turned(40, 0, seed), layers=LAYERS, global_model=np.zeros(D)).dropped
        outcome = defense(turned(40, 30, 7), layers=LAYERS, global_model=np.zeros(D))
        assert outcome.dropped == tuple(range(30))

    def test_on_doubt_everybody_is_kept_or_the_model_stays(self, caplog):
        updates = turned(40, 20, 1)
        assert Defense(Guard())(updates, layers=LAYERS).kept.size == 40
        assert "two camps of like size" in caplog.text
        stayed = Defense(Guard(on_doubt="stay"))(updates, layers=LAYERS, global_model=np.zeros(D))
        assert stayed.kept.size == 0
        assert np.array_equal(stayed.model, np.zeros(D))

    def test_trusted_clients_tell_two_halves_apart(self):
        updates = turned(40, 20, 1)
        assert Defense(Guard(trusted=(25,)))(updates, layers=LAYERS).dropped == tuple(range(20))

    def test_too_few_survivors_are_not_enough(self):
        updates = honest(30, 1)
        updates[:28] = -updates.mean(axis=0)
        assert Defense(Guard())(updates).kept.size == 0
        assert Defense(Guard(min_survivors=0.0))(updates).kept.size == 2

    def test_its_memory_survives_a_restart(self, tmp_path):
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

    def test_tensors_are_judged_as_arrays_are(self):
        updates = turned(40, 8, 1)
        array = Defense(Guard())(updates, layers=LAYERS)
        tensor = Defense(Guard())(torch.from_numpy(updates), layers=LAYERS)
        assert tensor.dropped == array.dropped
        assert np.allclose(tensor.scores.values, array.scores.values)

    @pytest.mark.parametrize("m", [1, 2, 3, 5])
    def test_tiny_rounds_are_kept(self, m):
        defense = Defense(Guard())
        for seed in range(3):
            assert defense(honest(m, seed), global_model=np.zeros(D)).kept.size == m

    def test_clients_that_did_not_move_are_no_copies(self):
        updates = honest(12, 1)
        updates[:3] = 0.0
        assert not set(Defense(Guard())(updates, global_model=np.zeros(D)).dropped) & {3, 4, 5, 6}

    def test_what_it_cannot_use_is_refused(self):
        with pytest.raises(InputError, match="on_doubt"):
            Guard(on_doubt="guess")
        with pytest.raises(InputError, match="evaluate"):
            Round(honest(3, 0), evaluate=3)


def test_camps_remembers_no_client():
    defense = Defense(Camps())
    for seed in range(3):
        assert defense(turned(40, 8, seed), layers=LAYERS, global_model=np.zeros(D)).dropped == tuple(range(8))
    assert defense.state.signatures.clients == ()
