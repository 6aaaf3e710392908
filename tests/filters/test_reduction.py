"""Which parameters a filter looks at when it does not look at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import Defense, Flanders, InputError
from flanders.filters.forecast.reduction import most_varied_columns, sample_of_layers

LAYERS = (30, 4, 12, 6)


def test_each_layer_gives_its_share_and_large_layers_make_up_for_small_ones(rng):
    for count in (1, 5, 20, 40, 52, 99):
        columns = sample_of_layers(52, count, LAYERS, rng, last_only=False)
        assert len(set(columns.tolist())) == columns.size == min(count, 52)
        assert np.all(np.diff(columns) > 0)
    layer = np.repeat(np.arange(4), LAYERS)
    given = np.bincount(layer[sample_of_layers(52, 20, LAYERS, rng, last_only=False)], minlength=4)
    assert given.tolist() == [6, 4, 5, 5]


def test_the_last_layer_gives_all_or_all_it_has(rng):
    assert sample_of_layers(52, 3, LAYERS, rng, last_only=True).size == 3
    np.testing.assert_array_equal(sample_of_layers(52, 99, LAYERS, rng, last_only=True), np.arange(46, 52))


def test_the_most_varied_parameters_are_those_of_the_largest_variance(rng):
    matrix = 1e3 + rng.normal(size=(30, 9)) * np.array([1, 9, 2, 8, 3, 7, 4, 6, 5])
    np.testing.assert_array_equal(most_varied_columns(matrix.astype(np.float32), 3), [1, 3, 5])


def test_the_filter_sees_an_outlier_only_in_the_parameters_it_chose(rng):
    honest = rng.normal(size=(8, 52))
    honest[:, 10:14] *= 10

    def dropped(poisoned, **options):
        defense = Defense(Flanders(keep=7, sample=4, **options), seed=0)
        for t in range(4):
            models = honest * 0.9**t
            if t == 3:
                models[2, poisoned] += 50.0
            outcome = defense(models)
        return outcome.dropped

    assert dropped(slice(10, 14), sampling="variance") == (2,)
    assert dropped(slice(46, 52), sampling="last-layer", layers=LAYERS) == (2,)
    assert dropped(slice(30, 34), sampling="per-layer", layers=(30, 1, 1, 1, 1, 18)) == (2,)
    assert dropped(slice(0, 10), sampling="last-layer", layers=LAYERS) != (2,)


def test_the_attackers_view_of_the_parameters_is_the_filters(rng):
    filter_ = Flanders(keep=2, sample=4, sampling="variance")
    defense = Defense(filter_, seed=0)
    assert filter_.visible_columns(defense.state, 52) is None
    defense(rng.normal(size=(3, 52)))
    assert filter_.visible_columns(defense.state, 52).tolist() == defense.state.columns.tolist()
    layered = Flanders(keep=2, sample=4, sampling="last-layer", layers=LAYERS)
    assert set(layered.visible_columns(defense.state, 52)) <= set(range(46, 52))


@pytest.mark.parametrize("center", [False, True])
def test_a_sketch_of_more_buckets_than_parameters_changes_no_score(rng, center):
    base, g = rng.normal(size=(8, 60)), 5 * rng.normal(size=60)
    plain, sketched = (
        Defense(Flanders(keep=1.0, center=center, **options), seed=0)
        for options in ({}, {"sketch": 10**6, "sketches": 1})
    )
    for t in range(5):
        models = g + 0.3 * base * 0.95**t + 0.05 * rng.normal(size=base.shape)
        expected, found = (defense(models, global_model=g) for defense in (plain, sketched))
        if t > 0:
            np.testing.assert_allclose(found.scores.values, expected.scores.values, rtol=1e-6)
        g = models.mean(axis=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": "variance"}, "needs `sample`"),
        ({"sampling": "variance", "sample": 3, "redraw": True}, "Leave out `redraw`"),
        ({"sampling": "last-layer", "sample": 3}, "needs `layers`"),
        ({"sample": 3, "layers": (3, 4)}, "for nothing else"),
        ({"sampling": "layers", "sample": 3}, "must be one of 'random', 'variance'"),
        ({"sampling": "variance", "sample": 3, "method": "reference"}, "fixes `sampling`"),
    ],
)
def test_choices_that_contradict_each_other_are_errors(options, words):
    with pytest.raises(InputError, match=words):
        Flanders(keep=3, **options)


def test_layers_that_do_not_add_up_to_the_model_are_an_error(rng):
    defense = Defense(Flanders(keep=2, sample=3, sampling="per-layer", layers=(3, 4)))
    with pytest.raises(InputError, match=r"have 7 parameters in all, but the models have 9"):
        defense(rng.normal(size=(3, 9)))
