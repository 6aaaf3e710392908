from __future__ import annotations

import numpy as np
import pytest

from flanders import InputError, Round
from flanders.filters import SkyMask
from flanders.filters.skymask import other_component
from own_examples import Distances


def a_round(m=40, malicious=0, d=200, seed=0, **parts):
    """Models near the point 2, where the loss is lowest; the first ones are as far on the other side."""
    rng = np.random.default_rng(seed)
    g = np.ones(d)
    steps = 0.5 + 0.1 * rng.normal(size=(m, d))
    steps[:malicious] *= -1
    parts = {"root": 0.5 + 0.1 * rng.normal(size=d), "evaluate": Distances(), **parts}
    return Round(g + steps, global_model=g, **parts)


def kept(round_):
    return SkyMask().select(SkyMask().score(None, round_)).tolist()


@pytest.mark.parametrize("malicious", [10, 20, 30])
def test_even_a_majority_that_raises_the_loss_is_dropped(malicious):
    assert kept(a_round(malicious=malicious)) == list(range(malicious, 40))


def test_a_model_without_a_finite_loss_is_dropped_and_does_not_hide_the_others():
    class Fragile(Distances):
        def __call__(self, model):
            return np.nan if np.abs(model).max() > 1e6 else super().__call__(model)

        def gradient(self, model):
            return super().gradient(model) * (np.nan if np.abs(model).max() > 1e6 else 1.0)

    whole = a_round(malicious=10, evaluate=Fragile())
    rows = whole.updates.copy()
    rows[0] = 1e12
    assert kept(whole.replace(rows)) == list(range(10, 40))


def test_if_no_model_has_a_finite_loss_nobody_is_kept():
    class Broken(Distances):
        def gradient(self, model):
            return model * np.nan

    assert kept(a_round(evaluate=Broken())) == []


@pytest.mark.parametrize("parts", [{"root": None}, {"evaluate": None}, {"evaluate": lambda model: 0.0}])
def test_it_says_what_it_needs(parts):
    with pytest.raises(InputError, match=r"needs the server's own update .* and losses with a gradient"):
        kept(a_round(**parts))


def test_equal_masks_are_all_like_the_server_s():
    assert other_component(np.zeros((5, 2))).tolist() == [0] * 5
