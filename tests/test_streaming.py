from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from flanders import (
    Defense,
    FedAvg,
    Guard,
    KeepAll,
    Krum,
    Median,
    ModelFile,
    StreamedDefense,
    load_state,
    save_state,
    state_to_bytes,
)
from flanders.checks import InputError
from flanders.linalg.sketch import STREAMED
from flanders.record import Fate

SIZE = 2 * STREAMED + 1000


def crowd(m=10, size=20_000, flipped=2, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    models = rng.normal(size=size) + 0.5 * rng.normal(size=(m, size))
    models[:flipped] *= -1
    return models.astype(dtype)


@pytest.mark.parametrize("aggregator", [FedAvg(), Median()], ids=repr)
def test_the_new_model_is_that_of_a_defense_which_keeps_the_same_clients(aggregator, tmp_path) -> None:
    models = crowd(4, SIZE, flipped=0)
    files = []
    for i, row in enumerate(models):
        files.append(ModelFile(tmp_path / f"{i}", SIZE))
        files[-1][:] = row
    start, new = ModelFile(tmp_path / "start", SIZE), ModelFile(tmp_path / "new", SIZE)
    outcome = StreamedDefense(KeepAll(), aggregator)(files, new, weights=[1, 2, 3, 4], global_model=start)
    expected = Defense(KeepAll(), aggregator)(models, weights=[1, 2, 3, 4], global_model=np.zeros(SIZE, np.float32))
    np.testing.assert_array_equal(outcome.kept, expected.kept)
    np.testing.assert_allclose(new[:], expected.model, rtol=1e-5, atol=1e-6)


def test_attackers_are_dropped_by_their_sketches() -> None:
    streamed, whole = StreamedDefense(Guard(), seed=1), Defense(Guard(), seed=1)
    model = np.zeros(20_000, np.float32)
    for number in range(4):
        updates = model + crowd(flipped=2 if number == 3 else 0, seed=number // 4)
        new = np.empty_like(model)
        found = streamed(list(updates), new, global_model=model)
        expected = whole(updates, global_model=model)
        assert found.dropped == expected.dropped
        model = new
    assert found.dropped == (0, 1)


def test_a_model_that_is_not_finite_is_left_out() -> None:
    models, new = crowd(6, flipped=0), np.empty(20_000, np.float32)
    models[3, 19_999] = np.nan
    outcome = StreamedDefense()(list(models), new, list("abcdef"), global_model=np.zeros(20_000, np.float32))
    assert [record.client for record in outcome.clients if record.fate is Fate.REFUSED] == ["d"]
    np.testing.assert_allclose(new, np.delete(models, 3, 0).mean(axis=0), rtol=1e-4, atol=1e-5)


def test_if_nobody_is_kept_the_model_stays() -> None:
    start, new = np.arange(100.0), np.empty(100)
    outcome = StreamedDefense()([np.full(100, np.inf)] * 3, new, global_model=start)
    assert outcome.kept.size == 0
    np.testing.assert_array_equal(new, start)


def test_the_new_model_may_take_the_place_of_the_old_one() -> None:
    models, model = crowd(5, flipped=0), np.zeros(20_000, np.float32)
    StreamedDefense(KeepAll())(list(models), model, global_model=model)
    np.testing.assert_allclose(model, models.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_memory_does_not_grow_with_the_model(tmp_path) -> None:
    peaks = []
    for size in (4 * STREAMED, 8 * STREAMED):
        files = [ModelFile(tmp_path / f"{size}-{i}", size) for i in range(6)]
        tracemalloc.start()
        StreamedDefense(KeepAll())(files[1:], files[0], global_model=files[0])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 5 * 4 * 8 * STREAMED  # less than the models


def test_the_memory_survives_a_restart(tmp_path) -> None:
    def rounds(defense, numbers):
        for number in numbers:
            new, old = np.empty(20_000, np.float32), np.zeros(20_000, np.float32)
            outcome = defense(list(crowd(flipped=2 * (number > 2), seed=1)), new, global_model=old)
            yield [(record.fate, record.score) for record in outcome.clients]

    whole = StreamedDefense(seed=0)
    expected = list(rounds(whole, range(5)))
    first, second = StreamedDefense(seed=0), StreamedDefense()
    found = list(rounds(first, range(2)))
    first.save(tmp_path / "memory.npz")
    second.load(tmp_path / "memory.npz")
    assert found + list(rounds(second, range(2, 5))) == expected
    with pytest.raises(InputError, match="with the same width"):
        StreamedDefense(width=100).load(tmp_path / "memory.npz")


def test_wrong_inputs_are_named(tmp_path) -> None:
    with pytest.raises(InputError, match="must be one of FedAvg, Median"):
        StreamedDefense(aggregator=Krum(num_malicious=1))
    with pytest.raises(InputError, match=r"`out` has shape \(4,\), but the global model has \(5,\)"):
        StreamedDefense()([np.zeros(5), np.zeros(5)], np.zeros(4), global_model=np.zeros(5))
    ModelFile(tmp_path / "model", 5)
    with pytest.raises(InputError, match="has 20 bytes, but 6 numbers of type float32 take 24"):
        ModelFile(tmp_path / "model", 6)


class Failing:
    """A model that cannot be read."""

    shape = (1000,)

    def __getitem__(self, columns):
        raise OSError("the file was removed")


@pytest.mark.parametrize(
    "bad",
    [
        np.full(1000, 1e100),
        np.full(1000, np.nan, np.float32),
        np.full(1000, 1e39 + 0j),
        np.array(["x"] * 1000),
        Failing(),
        np.zeros(1001, np.float32),
        np.zeros((1000, 1), np.float32),
        None,
    ],
    ids=["too large for the model's type", "NaN", "complex", "text", "unreadable", "long", "matrix", "nothing"],
)
@pytest.mark.parametrize("filter", [KeepAll(), Guard()], ids=repr)
def test_one_model_that_cannot_be_used_costs_nobody_else_the_round(bad, filter) -> None:
    models, new = crowd(8, 1000, flipped=0), np.empty(1000, np.float32)
    outcome = StreamedDefense(filter, seed=0)([*models, bad], new, global_model=np.zeros(1000, np.float32))
    assert outcome.clients[-1].fate is Fate.REFUSED
    assert outcome.kept.tolist() == list(range(8))
    np.testing.assert_allclose(new, models.mean(axis=0), rtol=1e-5, atol=1e-6)


class Changing:
    """A model whose numbers change after they were read for the first time."""

    shape = (1000,)

    def __init__(self, first, then):
        self.reads = [then, first]

    def __getitem__(self, columns):
        return (self.reads.pop() if len(self.reads) > 1 else self.reads[0])[columns]


@pytest.mark.parametrize("then", [np.full(1000, np.nan), np.zeros(7), np.array(["x"] * 1000)], ids=len)
def test_a_model_that_changes_while_it_is_aggregated_counts_as_unchanged(then) -> None:
    models, new = crowd(8, 1000, flipped=0), np.empty(1000, np.float32)
    changing = [*models[:7], Changing(models[7], then)]
    StreamedDefense(KeepAll(), seed=0)(changing, new, global_model=np.zeros(1000, np.float32))
    np.testing.assert_allclose(new, models[:7].sum(axis=0) / 8, rtol=1e-5, atol=1e-6)


def test_a_file_that_cannot_be_used_changes_nothing_of_a_streamed_defense(tmp_path) -> None:
    defense = StreamedDefense(seed=0)
    defense(list(crowd(8, 1000)), np.empty(1000), global_model=np.zeros(1000))
    defense.save(tmp_path / "good.npz")
    good = load_state(tmp_path / "good.npz")
    for change in ({"secret": -1}, {"secret": "x"}, {"defense": dataclasses.replace(good.defense, memory=3)}):
        save_state(tmp_path / "bad.npz", dataclasses.replace(good, **change))
        other = StreamedDefense(seed=1)
        before = state_to_bytes(other.defense.memory), other.sketch
        with pytest.raises(InputError, match=r"bad\.npz"):
            other.load(tmp_path / "bad.npz")
        assert (state_to_bytes(other.defense.memory), other.sketch) == before
