"""Our entries against the code that others published, on the same inputs.

That code does not install as a package. It was run once, and its results are written down here.
"""

from __future__ import annotations

import numpy as np
import pytest

from flanders.aggregators import Lasa
from flanders.aggregators.foolsgold import foolsgold_weights
from flanders.filters import SignGuard
from flanders.filters.skymask import SkyMask
from flanders.linalg.products import cosines_of_gram, gram
from flanders.round import Round

FOOLSGOLD = {
    0: [0.2112630818, 0.2112630818, 1.0, 1.0, 0.0, 0.0, 0.0],
    1: [0.6570971205, 1.0, 0.8148149131, 0.6570971205, 0.0, 0.0, 0.0],
    2: [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
}
"""The weights that `foolsgold` in deep-fg/fg/foolsgold.py of DistributedML/FoolsGold returns, by seed."""

SIGNGUARD = {0: {18}, 1: {7, 11}, 2: {7}, 3: {8}}
"""The honest clients that `signguard_multiclass` of JianXu95/SignGuard drops with clients 0 to 4, by seed."""

LASA = {
    0: [0.31457407, 0.47976733, 0.65173782, 0.01380659, 0.57949639, -0.00833041, 0.47837178, 0.79213089],
    1: [0.14986554, 0.345362, -0.6411553, -0.10031998, 0.98752551, 0.24413101, -0.14084319, 0.22048938],
    2: [-0.21495915, 0.23484746, 0.1986093, -0.42296879, 0.16394546, 0.03522043, -0.79413315, 0.72343077],
}
"""The first eight of 20 parameters that `lasa` of JiiahaoXU/LASA returns, by seed."""

SKYMASK = {
    0: "052058504807040024104a440500",
    1: "17142eeea4140808989b20a84500",
    2: "4030003a0c0064000413a0888080",
}
"""The masks, as bits, that KoalaYan/SkyMask trains on a linear model, by seed. Its mixture starts at random."""


@pytest.mark.parametrize("seed", list(FOOLSGOLD))
def test_foolsgold_weighs_as_its_authors_code(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(7, 5))
    rows[4:] = rows[4] + 0.1 * rng.normal(size=(3, 5))
    found = foolsgold_weights(cosines_of_gram(gram(rows)))
    np.testing.assert_allclose(found, FOOLSGOLD[seed], atol=1e-4)  # it adds 1e-5 to what it divides by


@pytest.mark.parametrize("seed", list(SIGNGUARD))
def test_signguard_keeps_whom_its_authors_code_keeps(seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(20, 60)) + 0.4
    rows[:4] *= -1
    rows[4] *= 9
    # Theirs looks at a tenth of the parameters in a row. Here every tenth holds the same numbers.
    guard, round_ = SignGuard(share=1.0), Round(np.tile(rows, (1, 10)))
    kept = guard.select(guard.score(guard.init(np.random.default_rng(0)), round_))
    assert set(range(20)) - set(kept.tolist()) == {0, 1, 2, 3, 4} | SIGNGUARD[seed]


@pytest.mark.parametrize("seed", list(LASA))
def test_lasa_averages_as_its_authors_code(seed):
    rows = 0.3 + np.random.default_rng(seed).normal(size=(9, 20))
    rows[:2] *= -3
    # With a sparsity of 0.3 theirs keeps 13 of 20 parameters, ours 14.
    found = Lasa(sparsity=0.35).aggregate(Round(rows, layers={"a": 12, "b": 8}), np.random.default_rng(0))
    np.testing.assert_allclose(found[:8], LASA[seed], atol=1e-8)


class Softmax:
    """The cross-entropy of a linear model of 4 features and 3 classes, flattened as weights and biases."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __call__(self, model):
        return -np.log(self._chances(model)[np.arange(len(self.y)), self.y])

    def gradient(self, model):
        errors = (self._chances(model) - np.eye(3)[self.y]) / len(self.y)
        return np.concatenate([(errors.T @ self.x).ravel(), errors.sum(axis=0)])

    def _chances(self, model):
        logits = self.x @ model[:12].reshape(3, 4).T + model[12:]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", list(SKYMASK))
def test_skymask_trains_the_masks_of_its_authors_code(seed):
    rng = np.random.default_rng(seed)
    x, true = rng.normal(size=(30, 4)), rng.normal(size=(3, 4))
    w = 0.3 * true[None] + 0.05 * rng.normal(size=(7, 3, 4))
    b = 0.05 * rng.normal(size=(7, 3))
    w[:2] *= -1
    rows = np.concatenate([w.reshape(7, 12), b], axis=1)
    round_ = Round(rows[:6], root=rows[6], evaluate=Softmax(x, np.argmax(x @ true.T, axis=1)))
    masks = SkyMask()._masks(round_, np.arange(6), round_.evaluate)
    assert np.packbits(masks.astype(bool)).tobytes().hex() == SKYMASK[seed]
