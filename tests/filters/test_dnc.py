"""DnC as a filter."""

from __future__ import annotations

import numpy as np

from flanders import Defense, DnCFilter, Round


def test_dnc_looks_at_other_parameters_in_every_round(rng):
    filter_, round_ = DnCFilter(sample=5), Round(rng.normal(size=(10, 100)))
    first = filter_.init(np.random.default_rng(0))
    second = filter_.amend(first, round_, np.arange(10), round_.global_model)
    scores = [filter_.score(state, round_).values for state in (first, first, second)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_dnc_as_a_filter_drops_who_stands_out(rng):
    models = rng.normal(size=(10, 50))
    models[[2, 5]] += 3
    outcome = Defense(DnCFilter(num_malicious=2), seed=0)(models)
    assert outcome.dropped == (2, 5)
