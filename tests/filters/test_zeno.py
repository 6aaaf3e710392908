from __future__ import annotations

import numpy as np
import pytest

from flanders import InputError, Round
from flanders.filters import Zeno
from own_examples import Distances

RNG = np.random.default_rng(0)


def a_round(malicious=6, **parts):
    rows = 1 + 0.1 * RNG.normal(size=(10, 20))
    rows[:malicious] *= -1
    return Round(rows, **{"evaluate": Distances(), **parts})


def kept(filter_, round_):
    return filter_.select(filter_.score(None, round_)).tolist()


def test_even_a_majority_that_raises_the_loss_is_dropped():
    assert kept(Zeno(num_malicious=6), a_round()) == [6, 7, 8, 9]


def test_length_has_its_price():
    rows = np.array([[1.0, 0.0], [1.0, 3.0]])  # the same loss, if only the first parameter counts
    round_ = Round(rows, evaluate=lambda model: float((model[0] - 2) ** 2))
    assert kept(Zeno(num_malicious=1), round_) == [0]
    np.testing.assert_allclose(np.diff(Zeno(rho=0.1).score(None, round_).values), [0.9])


def test_a_model_without_a_finite_loss_is_the_most_suspicious():
    class Fragile(Distances):
        def __call__(self, model):
            return np.nan if model[0] > 0.5 else super().__call__(model)

    scores = Zeno().score(None, a_round(malicious=9, evaluate=Fragile())).values
    assert np.all(np.isfinite(scores))
    assert np.argmax(scores) == 9


def test_it_says_that_it_needs_examples():
    with pytest.raises(InputError, match="Zeno needs losses on the server's examples"):
        kept(Zeno(), a_round(evaluate=None))
