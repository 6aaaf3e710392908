from __future__ import annotations

import numpy as np

from flanders import Round
from flanders.filters import SignGuard


def decide(rows, share=1.0, seed=0, **parts):
    guard = SignGuard(share)
    return guard.select(guard.score(guard.init(np.random.default_rng(seed)), Round(rows, **parts))).tolist()


def rows_of(m=20, d=400, flipped=0):
    rng = np.random.default_rng(1)
    rows = 0.5 + rng.normal(size=(m, d))
    rows[:flipped] *= -1
    return rows


def test_a_minority_with_other_signs_is_dropped():
    kept = decide(rows_of(flipped=6))
    assert not set(kept) & set(range(6))
    assert len(kept) >= 10


def test_updates_that_are_too_long_or_too_short_are_dropped():
    rows = rows_of()
    rows[0] *= 4
    rows[1] *= 0.05
    kept = decide(rows)
    assert 0 not in kept
    assert 1 not in kept
    assert len(kept) >= 14


def test_displacements_count_and_not_models():
    g = np.full(400, 100.0)
    assert decide(g + rows_of(flipped=6), global_model=g) == decide(rows_of(flipped=6))


def test_each_round_looks_at_other_parameters():
    guard, rows = SignGuard(0.1), rows_of()
    state = guard.init(np.random.default_rng(0))
    first = guard.score(state, Round(rows)).values
    after = guard.amend(state, Round(rows), np.arange(20), rows[0])
    assert not np.allclose(first, guard.score(after, Round(rows)).values)
