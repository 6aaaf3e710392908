"""Which parameters a filter looks at when it does not look at all of them."""

from __future__ import annotations

import numpy as np
import pytest

from flanders import LOOKS, Als, Defense, Everything, Flanders, InputError, Sample, Sketch
from flanders.filters.forecast.look import sample_of_layers
from flanders.linalg.columns import most_varied_columns

LAYERS = {"a.weight": 30, "b.weight": 4, "c.weight": 12, "d.weight": 4, "d.bias": 2}
SIZES = (30, 4, 12, 6)


def test_each_layer_gives_its_share_and_large_layers_make_up_for_small_ones(rng):
    for count in (1, 5, 20, 40, 52, 99):
        columns = sample_of_layers(SIZES, count, rng)
        assert len(set(columns.tolist())) == columns.size == min(count, 52)
        assert np.all(np.diff(columns) > 0)
    layer = np.repeat(np.arange(4), SIZES)
    given = np.bincount(layer[sample_of_layers(SIZES, 20, rng)], minlength=4)
    assert given.tolist() == [6, 4, 5, 5]


def test_the_last_layer_gives_all_or_all_it_has():
    assert Sample(3, "last-layer").columns(1, 52, LAYERS).size == 3
    np.testing.assert_array_equal(Sample(99, "last-layer").columns(1, 52, LAYERS), np.arange(46, 52))


def test_the_most_varied_parameters_are_those_of_the_largest_variance(rng):
    matrix = 1e3 + rng.normal(size=(30, 9)) * np.array([1, 9, 2, 8, 3, 7, 4, 6, 5])
    np.testing.assert_array_equal(most_varied_columns(matrix.astype(np.float32), 3), [1, 3, 5])


def test_the_filter_sees_an_outlier_only_in_the_parameters_it_chose(rng):
    honest = rng.normal(size=(8, 52))
    honest[:, 10:14] *= 10

    def dropped(poisoned, choose, layers=LAYERS):
        defense = Defense(Flanders(keep=7, look=Sample(4, choose)), seed=0)
        for t in range(4):
            models = honest * 0.9**t
            if t == 3:
                models[2, poisoned] += 50.0
            outcome = defense(models, layers=layers)
        return outcome.dropped

    assert dropped(slice(10, 14), "variance") == (2,)
    assert dropped(slice(46, 52), "last-layer") == (2,)
    small = {"a": 30, "b": 1, "c": 1, "d": 1, "e": 1, "f": 18}
    assert dropped(slice(30, 34), "per-layer", small) == (2,)
    assert dropped(slice(0, 10), "last-layer") != (2,)


def test_the_attackers_view_of_the_parameters_is_the_filters(rng):
    filter_ = Flanders(keep=2, look=Sample(4, "variance"))
    defense = Defense(filter_, seed=0)
    assert filter_.visible_columns(defense.state, 52) is None
    defense(rng.normal(size=(3, 52)))
    assert filter_.visible_columns(defense.state, 52).tolist() == defense.state.columns.tolist()
    layered = Flanders(keep=2, look=Sample(4, "last-layer"))
    assert set(layered.visible_columns(layered.init(rng), 52, LAYERS)) <= set(range(46, 52))
    for look in (Everything(), Sample(4, redraw=True), Sketch(8)):
        hidden = Flanders(keep=2, look=look)
        assert hidden.visible_columns(hidden.init(rng), 52) is None


@pytest.mark.parametrize("center", [False, True])
def test_a_sketch_of_more_buckets_than_parameters_changes_no_score(rng, center):
    base, g = rng.normal(size=(8, 60)), 5 * rng.normal(size=60)
    plain, sketched = (
        Defense(Flanders(keep=1.0, center=center, look=look), seed=0)
        for look in (Everything(), Sketch(10**6, repeats=1))
    )
    for t in range(5):
        models = g + 0.3 * base * 0.95**t + 0.05 * rng.normal(size=base.shape)
        expected, found = (defense(models, global_model=g) for defense in (plain, sketched))
        if t > 0:
            np.testing.assert_allclose(found.scores.values, expected.scores.values, rtol=1e-6)
        g = models.mean(axis=0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sample(0), "`size` parameter of Sample"),
        (lambda: Sample(3, "layers"), "`choose`.*must be one of 'random', 'variance'"),
        (lambda: Sample(3, "variance", redraw=True), "Leave out `redraw`"),
        (lambda: Sketch(0), "`width` parameter of Sketch"),
        (lambda: Sketch(8, repeats=0), "`repeats` parameter of Sketch"),
        (lambda: Als(iterations=0), "`iterations` parameter of Als"),
        (lambda: Als(ridge_a=-1.0), "`ridge_a` parameter of Als"),
    ],
)
def test_choices_that_cannot_be_meant_are_errors(make, words):
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize("choose", ["last-layer", "per-layer"])
def test_missing_layers_are_an_error_that_says_where_to_pass_them(rng, choose):
    defense = Defense(Flanders(keep=2, look=Sample(3, choose)))
    with pytest.raises(InputError, match=r"needs the sizes.*Pass `layers=`.*to Defense or Round"):
        defense(rng.normal(size=(3, 9)))


def test_layers_that_do_not_add_up_to_the_model_are_an_error(rng):
    defense = Defense(Flanders(keep=2, look=Sample(3, "per-layer")))
    with pytest.raises(InputError, match=r"must cover all 9 parameters of a row, but the sizes in it add up to 7"):
        defense(rng.normal(size=(3, 9)), layers={"a": 3, "b": 4})


def test_looks_have_names():
    assert LOOKS.make("sample", size=20) == Sample(20)
    assert LOOKS.make("sketch", width=64) == Sketch(64)
    assert LOOKS.make("everything") == Everything()
    assert [LOOKS.name_of(look) for look in (Everything(), Sample(), Sketch(9))] == list(LOOKS)
