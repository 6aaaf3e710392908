"""Golden tests against the strategies that come with Flower, on the same replies.

Deliberate differences:

- Distances: Flower's Krum family subtracts float32 inner products of whole models; ours takes displacements from
  the global model and accumulates in float64.
- Bulyan: Flower chooses its m - 2f models in one go by their Krum scores; the paper and we pick one by one, the
  scores renewed among those still there.
- Weights: Flower's Krum and Multi-Krum average the chosen by examples, ours only with `weighted=True`.
- Trimmed mean: a fraction of 0.29 of 100 clients is 29 a side for us, 28 for Flower.
- Too few clients: Flower's Bulyan returns None and its Krum goes on without its guarantee; ours are errors.
"""

from __future__ import annotations

import gc
import logging

import numpy as np
import pytest

from flanders.aggregators import Bulyan, FedAvg, Krum, Median, MultiKrum, TrimmedMean
from flanders.checks import InputError
from flanders.linalg.neighbours import bulyan_rows, multi_krum_rows
from flanders.linalg.products import squared_distances
from peers import flower, flower_model, flower_replies

theirs = flower()
multikrum = flower("serverapp.strategy.multikrum")


@pytest.fixture(autouse=True)
def _quiet_and_quick(caplog, monkeypatch):
    caplog.set_level(logging.ERROR, logger="flwr")
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Flower's Bulyan collects garbage after every reply


def random_rows(seed: int, m: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(m, 19)) * 3).astype(dtype), rng.integers(1, 50, size=m).astype(float)


PAIRS = [
    ("FedAvg", lambda f, m: (theirs.FedAvg(), FedAvg())),
    ("FedMedian", lambda f, m: (theirs.FedMedian(), Median())),
    ("FedTrimmedAvg", lambda f, m: (theirs.FedTrimmedAvg(beta=0.2), TrimmedMean(trim=0.2))),
    ("Krum", lambda f, m: (theirs.Krum(num_malicious_nodes=f), Krum(num_malicious=f))),
    (
        "MultiKrum",
        lambda f, m: (
            theirs.MultiKrum(num_malicious_nodes=f, num_nodes_to_select=m - f),
            MultiKrum(num_malicious=f, weighted=True),
        ),
    ),
]


@pytest.mark.parametrize("pair", [pytest.param(pair, id=name) for name, pair in PAIRS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("m", "f"), [(7, 2), (12, 4), (25, 3)])
def test_on_random_replies_our_aggregator_is_their_strategy(pair, m, f, dtype) -> None:
    rows, weights = random_rows(m, m, dtype)
    strategy, ours = pair(f, m)
    expected = flower_model(strategy, rows, weights)
    np.testing.assert_allclose(ours(rows, weights), expected, rtol=0, atol=1e-5 if dtype == "float32" else 1e-12)


def one_by_one(contents, num_malicious_nodes, num_nodes_to_select):
    """Choose as the Bulyan paper does, in the form that Flower's strategy takes a selection aggregator."""
    arrays = [next(iter(c.array_records.values())).to_numpy_ndarrays() for c in contents]
    distances = squared_distances(np.stack([np.concatenate(a) for a in arrays]))
    return [contents[i] for i in bulyan_rows(distances, num_malicious_nodes, num_nodes_to_select)]


@pytest.mark.parametrize(("m", "f"), [(7, 1), (9, 1), (15, 3)])
def test_with_the_papers_choice_their_bulyan_is_ours(m, f) -> None:
    rows, _ = random_rows(m, m)
    strategy = theirs.Bulyan(num_malicious_nodes=f, selection_rule=one_by_one)
    np.testing.assert_allclose(Bulyan(num_malicious=f)(rows), flower_model(strategy, rows), atol=1e-12)


def test_their_bulyan_chooses_in_one_go_where_the_paper_picks_one_by_one() -> None:
    rows, _ = random_rows(0, 15)
    distances, f = squared_distances(rows), 3
    assert not np.array_equal(multi_krum_rows(distances, f, 9), bulyan_rows(distances, f, 9))
    in_one_go = flower_model(theirs.Bulyan(num_malicious_nodes=f), rows)
    assert not np.allclose(in_one_go, Bulyan(num_malicious=f)(rows))


def test_their_trimmed_mean_loses_a_client_to_rounding() -> None:
    rows = np.arange(100.0)[:, None] ** 2 * np.ones(2)
    assert np.array_equal(flower_model(theirs.FedTrimmedAvg(beta=0.29), rows), TrimmedMean(trim=28)(rows))
    assert np.array_equal(TrimmedMean(trim=0.29)(rows), TrimmedMean(trim=29)(rows))


def test_below_its_bound_their_bulyan_returns_nothing_and_ours_says_why() -> None:
    rows, _ = random_rows(0, 6)
    assert flower_model(theirs.Bulyan(num_malicious_nodes=1), rows) is None
    with pytest.raises(InputError, match=r"Bulyan\(num_malicious=1\) needs at least 4b \+ 3 = 7 updates, got 6"):
        Bulyan(num_malicious=1)(rows)


def test_below_its_bound_their_krum_returns_an_attacker_and_ours_says_why() -> None:
    rows = np.array([[0.0, 0.0], [0.1, 0.2], [5.0, 5.0], [5.0, 5.0]])  # two of four malicious: m <= 2b + 2
    assert np.array_equal(flower_model(theirs.Krum(num_malicious_nodes=2), rows), [5.0, 5.0])
    with pytest.raises(InputError, match=r"Krum\(num_malicious=2\) needs more than 2b \+ 2 = 6 updates, got 4"):
        Krum(num_malicious=2)(rows)


def test_one_nan_reply_makes_their_median_nan_which_is_why_ours_stands_behind_a_gate() -> None:
    rows, _ = random_rows(0, 9)
    rows[0] = np.nan
    with np.errstate(invalid="ignore"):
        assert np.all(np.isnan(flower_model(theirs.FedMedian(), rows)))


def test_small_steps_of_a_large_float32_model_blind_their_multi_krum_and_not_ours() -> None:
    """Fifty clients step 3e-4 of the model's length, the ten malicious ones half as far again."""
    rng = np.random.default_rng(0)
    m, b, d = 50, 10, 10_000
    g = rng.normal(size=d)
    steps = rng.normal(size=(m, d))
    steps *= 3e-4 * np.linalg.norm(g) / np.linalg.norm(steps, axis=1, keepdims=True)
    steps[:b] *= 1.5
    rows = (g + steps).astype(np.float32)

    replies = flower_replies(rows)
    distances = multikrum.compute_distances([next(iter(r.content.array_records.values())) for r in replies])
    assert np.mean(distances[~np.eye(m, dtype=bool)] < 0) > 0.05  # squared distances below zero
    chosen = multikrum.select_multikrum([reply.content for reply in replies], b, m - b)
    theirs_kept = {i for i, reply in enumerate(replies) if any(reply.content is c for c in chosen)}
    assert len(theirs_kept & set(range(b))) >= 2

    exact = np.stack([((rows.astype(float) - row) ** 2).sum(axis=1) for row in rows[:3].astype(float)])
    for start in (g.astype(np.float32), np.zeros(d, dtype=np.float32)):  # also without knowing the global model
        ours = squared_distances(rows, start)
        np.testing.assert_allclose(ours[:3], exact, rtol=1e-6)
        assert np.all(multi_krum_rows(ours, b, m - b) >= b)
    np.testing.assert_allclose(MultiKrum(num_malicious=b)(rows), rows[b:].mean(axis=0), atol=1e-5)
