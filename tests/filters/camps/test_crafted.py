"""Copies, noisy copies and pure noise are found; honest updates are not."""

from __future__ import annotations

import numpy as np
import pytest

from filters.camps.federation import D, honest
from flanders import Defense, Guard
from flanders.filters.camps.crafted import crafted_rows
from flanders.linalg.products import gram
from flanders.round import Round


def crafted(updates, *fingerprints):
    return crafted_rows(Round(updates), gram(updates), *fingerprints)


def test_copies_are_found_as_a_minority_and_as_a_majority():
    for b in (2, 20):
        updates = honest(30, 1)
        updates[:b] = -updates.mean(axis=0)
        assert np.array_equal(crafted(updates), np.arange(30) < b)


@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_noise_does_not_hide_copies(noise):
    rng, updates = np.random.default_rng(123), honest(30, 1)
    step = updates.mean(axis=0)
    each = rng.normal(size=(12, D))
    updates[:12] = step + noise * np.linalg.norm(step) * each / np.linalg.norm(each, axis=1, keepdims=True)
    assert np.array_equal(crafted(updates), np.arange(30) < 12)


def test_bare_noise_is_found_and_does_not_spoil_the_others():
    updates = honest(30, 1)
    updates[:20] = 10 * np.random.default_rng(123).normal(size=(20, D))
    assert np.array_equal(crafted(updates), np.arange(30) < 20)


def test_large_rounds_are_judged_by_random_sums():
    rng, updates = np.random.default_rng(123), honest(300, 1)
    updates[:40] = updates.mean(axis=0) + 0.7 * rng.normal(size=(40, D))
    found = crafted(updates)
    assert found[:40].all()
    assert found[40:].mean() < 0.01


def test_honest_clients_are_not_crafted():
    for seed in range(5):
        assert not crafted(honest(20, seed)).any()


def test_whose_mark_a_copied_update_bears_is_its_author():
    updates = honest(20, 1)
    updates[:5] = updates[7]
    marks = np.zeros(20)
    marks[7] = 6.0
    assert np.array_equal(np.flatnonzero(crafted(updates, marks)), np.arange(5))
    assert crafted(updates)[7]


def test_where_all_updates_are_mostly_noise_noise_is_no_sign_of_an_attack():
    rng = np.random.default_rng(0)
    private = 0.1 * rng.normal(size=5000) + rng.normal(size=(30, 5000))  # e.g. noise for the clients' privacy
    assert not crafted(private).any()


def test_a_noisy_copy_does_not_get_its_author_dropped():
    rng, m, d = np.random.default_rng(0), 30, 5000
    scale = np.exp(rng.normal(size=d))  # training changes some parameters more than others
    basis, common = scale * rng.normal(size=(40, d)), 1.5 * scale * rng.normal(size=d)
    own, defense = 0.3 * rng.normal(size=(m, 40)) @ basis, Defense(Guard())
    for number in range(6):
        updates = common + own + 0.15 * rng.normal(size=(m, 40)) @ basis + 0.1 * scale * rng.normal(size=(m, d))
        if number == 5:
            updates[:8] = updates[8:16] + 0.01 * updates.std() * rng.normal(size=(8, d))
        outcome = defense(updates, global_model=np.zeros(d))
    assert outcome.dropped == tuple(range(8))
