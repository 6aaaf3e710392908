"""Golden tests against ByzFL: the same arrays, the same models, and where we differ on purpose.

Deliberate differences:

- Krum: ByzFL sums the n - f - 1 nearest others, the paper and we the m - b - 2: theirs with f is ours with
  b = f - 1.
- Geometric median: theirs takes 3 steps from zero with an absolute floor of 0.1 on distances. Ours goes on until it
  is proven to be there, without a floor; with 3 steps the two are the same.
- Centered clipping: theirs remembers its last result inside the object, ours starts from the global model.
- SMEA and CAF: theirs estimate eigenvectors with one step from a random vector, ours compute them.
- Clipping: theirs clips in place, ours leaves the input alone.
"""

from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import (
    Arc,
    Bucketing,
    CenteredClipping,
    FedAvg,
    GeometricMedian,
    Krum,
    MeanAroundMedian,
    Median,
    MinimumDiameter,
    MultiKrum,
    Nnm,
    NormClipping,
    TrimmedMean,
)
from flanders.round import Round
from peers import byzfl

theirs = byzfl("aggregators.aggregators")
theirs_before = byzfl("aggregators.preaggregators")

DOCUMENTED = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


def random_rows(seed: int, m: int, d: int = 21) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, d)) * 3


PAIRS = [
    ("Average", lambda f, m: (theirs.Average(), FedAvg())),
    ("Median", lambda f, m: (theirs.Median(), Median())),
    ("TrMean", lambda f, m: (theirs.TrMean(f), TrimmedMean(trim=f))),
    ("Meamed", lambda f, m: (theirs.Meamed(f), MeanAroundMedian(num_malicious=f))),
    ("Krum", lambda f, m: (theirs.Krum(f), Krum(num_malicious=f - 1))),
    ("MultiKrum", lambda f, m: (theirs.MultiKrum(f), MultiKrum(num_malicious=f - 1, keep=m - f))),
    ("GeometricMedian", lambda f, m: (theirs.GeometricMedian(), GeometricMedian(iterations=3))),
    ("GeometricMedian, longer", lambda f, m: (theirs.GeometricMedian(T=40), GeometricMedian(iterations=40))),
    ("CenteredClipping", lambda f, m: (theirs.CenteredClipping(L=3, tau=4.0), CenteredClipping(4.0, 3))),
    ("NNM", lambda f, m: (theirs_before.NNM(f), Nnm(num_malicious=f))),
    ("ARC", lambda f, m: (theirs_before.ARC(f), Arc(num_malicious=f))),
    ("MDA", lambda f, m: (theirs.MDA(min(f, 3)), MinimumDiameter(num_malicious=min(f, 3)))),
    ("Clipping", lambda f, m: (theirs_before.Clipping(9.0), NormClipping(radius=9.0))),
]


@pytest.mark.parametrize("pair", [pytest.param(pair, id=name) for name, pair in PAIRS])
@pytest.mark.parametrize(("m", "f"), [(7, 2), (12, 1), (25, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_on_random_rows_our_aggregator_is_theirs(pair, m, f, seed) -> None:
    rows = random_rows(seed, m)
    peer, ours = pair(f, m)
    np.testing.assert_allclose(ours(rows), peer(rows.copy()), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("aggregator", "first"),
    [
        (FedAvg(), 4.0),
        (Median(), 4.0),
        (TrimmedMean(trim=1), 4.0),
        (MeanAroundMedian(num_malicious=1), 2.5),
        (GeometricMedian(iterations=3), 3.78788764),
        (Krum(num_malicious=0), 1.0),  # their Krum(1)
        (MultiKrum(num_malicious=0, keep=2), 2.5),  # their MultiKrum(1)
        (CenteredClipping(radius=100.0, iterations=1), 4.0),
    ],
    ids=str,
)
def test_the_values_in_their_documentation_are_ours(aggregator, first) -> None:
    np.testing.assert_allclose(aggregator(DOCUMENTED), [first, first + 1, first + 2], rtol=1e-8)


def test_the_rows_of_nearest_neighbour_mixing_in_their_documentation_are_ours() -> None:
    np.testing.assert_allclose(Nnm(num_malicious=1)(DOCUMENTED)[:, 0], [2.5, 2.5, 5.5])
    np.testing.assert_allclose(theirs_before.NNM(1)(DOCUMENTED)[:, 0], [2.5, 2.5, 5.5])


def test_their_krum_counts_one_neighbour_more_than_the_paper() -> None:
    rows = np.array([[0.0], [1.0], [4.0], [5.0], [6.0], [8.0]])
    # The m - b - 2 = 3 nearest of 5: 1 + 1 + 9 = 11, of 6: 1 + 4 + 4 = 9.
    assert Krum(num_malicious=1)(rows) == [6.0]
    # A fourth adds 16 to 5 and 25 to 6.
    assert theirs.Krum(1)(rows) == [5.0]


def test_bucketing_makes_the_same_number_of_buckets_with_the_same_mean() -> None:
    rows = random_rows(0, 11)
    np.random.seed(0)  # noqa: NPY002 - theirs draws from the global generator
    peer, ours = theirs_before.Bucketing(4)(rows), Bucketing(4).prepare(Round(rows), np.random.default_rng(0))
    assert peer.shape == ours.updates.shape == (3, 21)
    sizes = ours.weights
    assert sizes.tolist() == [4, 4, 3]
    np.testing.assert_allclose(sizes @ peer, sizes @ ours.updates, atol=1e-12)


def test_their_clipping_changes_its_input_and_ours_does_not() -> None:
    rows = random_rows(0, 4)
    before = rows.copy()
    NormClipping(radius=1.0)(rows)
    assert np.array_equal(rows, before)
    theirs_before.Clipping(1.0)(rows)
    assert not np.array_equal(rows, before)


def test_their_centered_clipping_remembers_and_ours_does_not() -> None:
    rows, peer, ours = random_rows(0, 6), theirs.CenteredClipping(L=1, tau=1.0), CenteredClipping(1.0, 1)
    first = ours(rows)
    np.testing.assert_allclose(first, peer(rows))
    np.testing.assert_allclose(ours(rows, global_model=first), peer(rows))
    assert np.array_equal(ours(rows), first)


def test_one_nan_row_makes_their_aggregators_return_nan_which_is_why_ours_stand_behind_a_gate() -> None:
    rows = random_rows(0, 9)
    rows[0] = np.nan
    for peer in (theirs.Median(), theirs.GeometricMedian(), theirs.CenteredClipping()):
        assert np.all(np.isnan(peer(rows)))
