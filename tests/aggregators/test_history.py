from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, InputError, KeepAll
from flanders.aggregators import CenteredClipping, HistoryClipping, SparseFed
from flanders.round import Round
from peers import byzfl

theirs = byzfl("aggregators.aggregators")
RNG = np.random.default_rng(0)
ROUNDS = [3 * RNG.normal(size=(7, 12)) + 1 for _ in range(4)]


@pytest.mark.parametrize(("radius", "iterations"), [(1.0, 1), (4.0, 3)])
def test_centered_clipping_with_history_is_that_of_byzfl_round_by_round(radius, iterations):
    peer, ours, memory = (
        theirs.CenteredClipping(L=iterations, tau=radius),
        HistoryClipping(radius, iterations),
        None,
    )
    for rows in ROUNDS:
        model, memory = ours.step(memory, Round(rows), np.random.default_rng(0))
        np.testing.assert_allclose(model, peer(rows.copy()), atol=1e-12)


def test_the_first_round_is_centered_clipping_without_history():
    np.testing.assert_allclose(HistoryClipping(2.0, 3)(ROUNDS[0]), CenteredClipping(2.0, 3)(ROUNDS[0]), atol=1e-12)


def test_the_last_step_counts_from_the_new_global_model():
    g, step = np.full(12, 5.0), np.full(12, 0.5)
    defense = Defense(KeepAll(), HistoryClipping(radius=100.0), seed=0)
    first = defense(g + step[None, :] * np.ones((3, 1)), global_model=g).model
    second = defense(first + step[None, :] * np.ones((3, 1)), global_model=first).model
    np.testing.assert_allclose(second - first, step)


def sparse_by_hand(rounds, share, momentum):
    """The paper's server, with numbers that are all different."""
    g = v = w = np.zeros(12)
    for rows in rounds:
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        mean = (rows * np.minimum(1, np.median(lengths) / lengths)).mean(axis=0)
        v = momentum * v + mean
        w = w + v
        top = np.argsort(-np.abs(w))[: int(np.ceil(share * 12))]
        g = g.copy()
        g[top] += w[top]
        v, w = v.copy(), w.copy()
        v[top] = w[top] = 0
        yield g


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sparsefed_keeps_what_it_does_not_apply(share, momentum):
    memory, g = None, np.zeros(12)
    for rows, expected in zip(ROUNDS, sparse_by_hand(ROUNDS, share, momentum), strict=True):
        round_ = Round(g + rows, global_model=g)
        g, memory = SparseFed(share, momentum=momentum).step(memory, round_, np.random.default_rng(0))
        np.testing.assert_allclose(g, expected, atol=1e-9)


@pytest.mark.parametrize("aggregator", [HistoryClipping(), SparseFed()], ids=str)
def test_a_memory_of_another_model_is_an_error(aggregator):
    _, memory = aggregator.step(None, Round(ROUNDS[0]), np.random.default_rng(0))
    with pytest.raises(InputError, match="empty memory"):
        aggregator.step(memory, Round(np.ones((3, 5))), np.random.default_rng(0))
