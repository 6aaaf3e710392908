"""Our attacks against ByzFL's, on the same honest updates. ByzFL's vectors are displacements, so that g is zero.

Deliberate differences:

- ByzFL's "A little is enough" adds tau standard deviations, and estimates them with n - 1. Ours subtracts, as the
  paper does, and takes the population's.
- ByzFL's optimal variants search their strength against an aggregator object. Our `optimal-ipm` and `optimal-lie`
  search against the server itself. `tests/attacks/test_searching.py` compares them.
"""

from __future__ import annotations

import numpy as np
import pytest

from flanders.attacks import Ipm, Lie, Mimic, SignFlip, View
from peers import byzfl

theirs = byzfl("attacks.attacks")


def a_view(seed, benign=9, malicious=2):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(benign + malicious, 30)) + 0.5
    return View(rows[:malicious], np.zeros(30), benign + malicious, benign=rows[malicious:])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tau", [0.1, 3.0])
def test_inner_product_manipulation(seed, tau):
    view = a_view(seed)
    expected = theirs.InnerProductManipulation(tau=tau)(view.benign)
    np.testing.assert_allclose(Ipm(epsilon=tau)(view), np.tile(expected, (2, 1)), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_little_is_enough_with_its_sign_turned(seed):
    view = a_view(seed)
    mean = view.benign.mean(axis=0)
    shift = theirs.ALittleIsEnough(tau=1.5)(view.benign) - mean
    n = len(view.benign)
    np.testing.assert_allclose(Lie(z=1.5)(view)[0], mean - shift * np.sqrt((n - 1) / n), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sign_flipping_turns_the_mean_of_the_rows_it_is_given(seed):
    view = a_view(seed)
    expected = theirs.SignFlipping()(view.own)
    np.testing.assert_allclose(SignFlip()(view).mean(axis=0), expected, atol=1e-12)


def test_mimic_copies_the_first_client():
    view = a_view(0)
    np.testing.assert_allclose(Mimic()(view)[0], theirs.Mimic(epsilon=0)(view.benign))
