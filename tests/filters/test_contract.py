"""What holds for every filter, whatever it does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from flanders import (
    FILTERS,
    Als,
    Defense,
    Fingerprint,
    Flanders,
    InputError,
    Round,
    Sample,
    Sketch,
    defend,
    load_state,
    save_state,
    state_to_bytes,
)
from own_examples import OwnDefense, a_round

PARAMETERS = {"flanders": {"keep": 0.7}, "flanders-reference": {"keep": 0.7}}
LAYERS = {"body.weight": 40, "body.bias": 5, "head.weight": 12, "head.bias": 3}
VARIANTS = {
    "fingerprint": [{}, {"max_false_positive_rate": 0.2, "min_survivors": 0.5}],
    "flanders": [
        {"keep": 0.7},
        {"threshold": 0.5},
        {"keep": 0.7, "order": 2, "window": 3},
        {"keep": 0.7, "look": Sample(20)},
        {"keep": 0.7, "look": Sample(20, "variance")},
        {"keep": 0.7, "look": Sample(10, "last-layer")},
        {"keep": 0.7, "look": Sample(20, "per-layer")},
        {"keep": 0.7, "look": Sample(20, redraw=True)},
        {"keep": 0.7, "look": Sketch(64, repeats=2)},
        {"keep": 0.7, "solver": Als(refit_every=2)},
        {"keep": 0.7, "distance": "l1"},
        {"keep": 0.7, "amend_with": "global"},
    ],
    "flanders-reference": [{"keep": 0.7, "sample": 20, "iterations": 20}, {"threshold": 0.5, "sample": 20}],
    "fldetector": [{}, {"keep": 0.7, "window": 3}],
    "fldetector-lagged": [{}, {"keep": 0.7, "window": 3}],
    "dnc": [{}, {"keep": 0.7, "sample": 20}],
    "kmeans": [{}, {"keep": 0.7}],
    "krum": [{}, {"keep": 0.7}],
    "flame": [{}, {"angles": "updates"}],
    "afa": [{}, {"angles": "updates", "slack": 1.0}],
}
ENTRIES = [(name, p) for name in FILTERS for p in VARIANTS.get(name, [PARAMETERS.get(name, {})])]
every_filter = pytest.mark.parametrize(
    ("name", "parameters"), ENTRIES, ids=[f"{n}-{'-'.join(map(str, p.values()))}" for n, p in ENTRIES]
)


def rounds(dtype=np.float64, clients=10, parameters=60, count=6):
    rng = np.random.default_rng(7)
    base = rng.normal(size=(clients, parameters))
    for t in range(count):
        models = base * 0.9**t + 0.1 * rng.normal(size=base.shape) + 2
        if t >= 3:
            models[:3] += rng.normal(size=(3, parameters))
        yield models.astype(dtype)


def outcomes(filter_, convert=np.asarray, order=None, dtype=np.float64):
    defense = OwnDefense(filter_, seed=11)
    names = [f"client-{i}" for i in range(10)]
    found = []
    for models in rounds(dtype):
        rows = np.arange(10) if order is None else order
        found.append(defense(convert(models[rows]), [names[i] for i in rows], layers=LAYERS))
    return found


@every_filter
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_array_library_gives_the_same_decisions_and_its_own_kind_back(name, parameters, dtype, convert):
    filter_ = FILTERS.make(name, **parameters)
    for ours, expected in zip(outcomes(filter_, convert, dtype=dtype), outcomes(filter_, dtype=dtype), strict=True):
        assert type(ours.model) is type(convert(np.zeros(1)))
        assert ours.model.dtype == convert(np.zeros(1, dtype=dtype)).dtype
        assert ours.dropped == expected.dropped
        tolerance = 1e-3 if dtype == np.float32 else 1e-7
        np.testing.assert_allclose(np.asarray(ours.model), expected.model, rtol=tolerance, atol=tolerance)
        if expected.scores is not None:
            np.testing.assert_allclose(
                ours.scores.values,
                expected.scores.values,
                rtol=tolerance,
                atol=tolerance * expected.scores.values.max(),
            )


@every_filter
def test_the_order_in_which_clients_reply_does_not_matter(name, parameters):
    filter_ = FILTERS.make(name, **parameters)
    order = np.array([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    for moved, plain in zip(outcomes(filter_, order=order), outcomes(filter_), strict=True):
        assert set(moved.dropped) == set(plain.dropped)
        if plain.scores is not None:
            by_name = dict(zip(moved.scores.clients, moved.scores.values, strict=True))
            values = [by_name[c] for c in plain.scores.clients]
            np.testing.assert_allclose(values, plain.scores.values, rtol=1e-5, atol=1e-9)


@every_filter
def test_made_up_client_ids_do_not_fill_the_memory(name, parameters):
    defense, rng, sizes = OwnDefense(FILTERS.make(name, **parameters), seed=11), np.random.default_rng(3), []
    shared = rng.normal(size=60)
    for number in range(45):
        models = shared + 0.3 * rng.normal(size=(10, 60))
        defense(models, [f"{number:03}-{i}" for i in range(10)], global_model=np.zeros(60), layers=LAYERS)
        sizes.append(len(state_to_bytes(defense.state)))
    assert sizes[-1] < 1.05 * max(sizes[:25])


@every_filter
def test_the_same_seed_gives_the_same_bytes(name, parameters):
    filter_ = FILTERS.make(name, **parameters)
    for one, two in zip(outcomes(filter_), outcomes(filter_), strict=True):
        assert one.model.tobytes() == two.model.tobytes()
        assert one.scores is None or one.scores.values.tobytes() == two.scores.values.tobytes()


@every_filter
def test_the_callers_arrays_are_neither_changed_nor_kept(name, parameters):
    """The same run with each round's array overwritten afterwards: the memory must not notice."""
    filter_ = FILTERS.make(name, **parameters)
    clean, reused = OwnDefense(filter_, seed=1), OwnDefense(filter_, seed=1)
    for models in rounds():
        before = models.copy()
        expected = clean(models, layers=LAYERS)
        np.testing.assert_array_equal(models, before)
        buffer = models.copy()
        found = reused(buffer, layers=LAYERS)
        assert found.dropped == expected.dropped
        np.testing.assert_array_equal(found.model, expected.model)
        buffer[:] = np.nan


@every_filter
def test_the_global_model_may_be_updated_in_place(name, parameters):
    """The server's own array is passed each round and then written over with the new model."""
    filter_ = FILTERS.make(name, **parameters)
    clean, reused = OwnDefense(filter_, seed=1), OwnDefense(filter_, seed=1)
    before, buffer = np.zeros(60), np.zeros(60)
    for models in rounds():
        expected = clean(models, global_model=before.copy(), layers=LAYERS)
        found = reused(models, global_model=buffer, layers=LAYERS)
        assert found.dropped == expected.dropped
        if expected.scores is not None:
            np.testing.assert_array_equal(found.scores.values, expected.scores.values)
        before, buffer[:] = expected.model, found.model


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fingerprint", {}),
        ("flanders", {"keep": 0.7}),
        ("flanders", {"keep": 0.7, "solver": Als(refit_every=2)}),
        ("flanders", {"keep": 0.7, "look": Sketch(64)}),
        ("flanders", {"keep": 0.7, "distance": "l1"}),
        ("fldetector", {}),
        ("persistence", {}),
    ],
    ids=str,
)
def test_other_models_than_those_remembered_are_an_error(name, parameters):
    for other in (np.ones((10, 61)), np.ones((10, 59)), torch.ones(10, 60, dtype=torch.float64)):
        defense = OwnDefense(FILTERS.make(name, **parameters), seed=0)
        for models in rounds(count=3):
            defense(models)
        with pytest.raises(
            InputError,
            match=r"models (of this round have|are) .* but (those of earlier rounds had|the remembered models are)",
        ):
            defense(other, global_model=other[0, :])


@every_filter
def test_a_state_saved_and_loaded_goes_on_bit_for_bit(name, parameters, tmp_path, convert):
    filter_ = FILTERS.make(name, **parameters)
    state = filter_.init(np.random.default_rng(2))
    copy = state
    for models in rounds(np.float32):
        round_ = a_round(filter_, convert(models), layers=LAYERS)
        aggregate = lambda rows, r=round_: r.take(rows).updates[0, :]  # noqa: E731
        one = defend(filter_, state, round_, aggregate)
        two = defend(filter_, copy, round_, aggregate)
        assert one.dropped == two.dropped
        assert one.scores is None or one.scores.values.tobytes() == two.scores.values.tobytes()
        state = one.state
        save_state(tmp_path / "state.npz", two.state)
        copy = load_state(tmp_path / "state.npz", like=round_.updates)
        assert_same(copy, two.state)


def assert_same(one, two):
    assert type(one) is type(two)
    if dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same(getattr(one, field.name), getattr(two, field.name))
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    elif hasattr(one, "shape"):
        assert one.dtype == two.dtype
        assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
    else:
        assert one == two


@every_filter
def test_a_state_is_never_changed_in_place(name, parameters, tmp_path):
    filter_ = FILTERS.make(name, **parameters)
    state = filter_.init(np.random.default_rng(2))
    for models in rounds():
        round_ = a_round(filter_, models, layers=LAYERS)
        save_state(tmp_path / "before.npz", state)
        outcome = defend(filter_, state, round_, lambda rows, m=models: m[rows].mean(axis=0))
        assert_same(load_state(tmp_path / "before.npz"), state)
        state = outcome.state


@every_filter
def test_scores_are_finite_and_kept_rows_are_real_and_in_order(name, parameters):
    for outcome in outcomes(FILTERS.make(name, **parameters)):
        assert np.all(np.diff(outcome.kept) > 0)
        assert set(outcome.kept.tolist()) <= set(range(10))
        if outcome.scores is not None:
            assert outcome.scores.values.shape == (10,)
            assert np.all(np.isfinite(outcome.scores.values))


@every_filter
def test_one_client_alone_in_a_round_is_handled(name, parameters):
    parameters = {**parameters, **({"num_malicious": 0} if name == "dnc" else {})}
    defense = OwnDefense(FILTERS.make(name, **parameters), seed=0)
    for models in rounds():
        outcome = defense(models[:1], ["only"], layers=LAYERS)
        assert np.all(np.isfinite(outcome.model))


@pytest.mark.parametrize("name", list(FILTERS))
def test_an_unknown_parameter_is_an_error_with_a_guess(name):
    guess = "Did you mean 'keep'" if "keep" in FILTERS.describe(name).parameters else "It has"
    with pytest.raises(InputError, match=rf"has no parameter 'keeep'\. {guess}"):
        FILTERS.make(name, keeep=3)


@pytest.mark.parametrize(
    "name", [name for name in FILTERS if FILTERS.make(name, **PARAMETERS.get(name, {})).init()]
)
def test_a_state_that_another_filter_made_is_refused(name):
    filter_ = FILTERS.make(name, **PARAMETERS.get(name, {}))
    other = Flanders(keep=3) if name != "flanders" else Fingerprint()
    state, round_ = other.init(np.random.default_rng(0)), Round(np.ones((4, 3)))
    with pytest.raises(InputError, match=rf"needs a \w+State.*Got {type(other).__name__}State instead"):
        filter_.score(state, round_)
    with pytest.raises(InputError, match=r"needs a \w+State"):
        filter_.amend(state, round_, np.arange(4), np.ones(3))


@every_filter
def test_a_file_that_another_filter_saved_is_refused_and_changes_nothing(name, parameters, tmp_path):
    saved = Defense(seed=1) if name != "guard" else Defense(Flanders(keep=4), seed=1)
    defense = OwnDefense(FILTERS.make(name, **parameters), seed=2)
    for models in rounds(count=3):
        saved(models)
        defense(models, layers=LAYERS)
    saved.save(tmp_path / "memory.npz")
    before = defense.memory
    with pytest.raises(InputError, match=r"memory\.npz: This memory was made by .* but the filter is"):
        defense.load(tmp_path / "memory.npz")
    assert_same(defense.memory, before)


def test_the_paper_s_filter_refuses_what_the_default_filter_saved(tmp_path):
    Defense().save(tmp_path / "memory.npz")
    with pytest.raises(InputError, match=r"made by Guard\(.*but the filter is Flanders\("):
        Defense(Flanders(keep=4)).load(tmp_path / "memory.npz")


def test_the_default_filter_comes_first():
    assert type(Defense().filter) is next(iter(FILTERS.values()))
    with pytest.raises(InputError, match="Did you mean 'fldetector'"):
        FILTERS.make("fldetektor")
