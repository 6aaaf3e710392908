from __future__ import annotations

import numpy as np
import pytest

from flanders import KeepAll
from flanders.flower import FilteredStrategy
from flanders.flower.model_arrays import ModelArrays
from flower.federation import app, flat, grid_of, model, play, strategies


def batch_norm_model(dtype="float32"):
    start = model((6, 7), (7,), (7,), names=["w", "bn.running_mean", "v"], dtype=dtype)
    start["bn.num_batches_tracked"] = app.Array(np.asarray(3))
    return start


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_flattening_and_back_keeps_every_bit(dtype) -> None:
    start = batch_norm_model(dtype)
    arrays = ModelArrays.of(start)
    vector = arrays.flatten(start, arrays.float_type(start))
    assert vector.dtype == ("float64" if dtype == "float64" else "float32")
    assert vector.shape == (arrays.size,) == (49,)
    back = arrays.unflatten(vector, start)
    assert list(back) == list(start)
    for name in start:
        np.testing.assert_array_equal(back[name].numpy(), start[name].numpy(), strict=True)


def test_only_scored_arrays_are_replaced() -> None:
    start = batch_norm_model()
    arrays = ModelArrays.of(start)
    changed = arrays.unflatten(np.zeros(arrays.size, dtype=np.float32), start)
    assert arrays.layers == {"w.kernel": 42, "w.bias": 7}
    assert not changed["w"].numpy().any()
    for name in ("bn.running_mean", "bn.num_batches_tracked"):
        assert changed[name] == start[name]


def test_a_number_too_large_for_float32_becomes_infinite() -> None:
    start = model((2,), dtype="float64")
    start["layer0.weight"] = app.Array(np.array([1.0, 1e300]))
    np.testing.assert_array_equal(ModelArrays.of(start).flatten(start), [1.0, np.inf])


def with_batch_norm(dtype="float32"):
    start = model((6, 7), (7,), names=["w", "bn.running_mean"], dtype=dtype)
    start["bn.running_var"] = app.Array(np.ones(7, dtype=dtype))
    start["bn.num_batches_tracked"] = app.Array(np.asarray(0, dtype=np.int64))
    return start


def in_place_of(name, numbers):
    """Return a twist that sends these numbers as one of the arrays."""

    def twist(message, honest):
        honest["arrays"][name] = app.Array(np.asarray(numbers(honest["arrays"][name].numpy())))
        return app.Message(honest, reply_to=message)

    return twist


TAKEOVERS = {
    "a variance beyond float32": in_place_of("bn.running_var", lambda x: np.full(7, 1e300)),
    "a variance at the end of float32": in_place_of("bn.running_var", lambda x: np.full(7, 3e38, dtype=np.float32)),
    "a negative variance": in_place_of("bn.running_var", lambda x: np.full(7, -40, dtype=np.float32)),
    "a mean far away": in_place_of("bn.running_mean", lambda x: np.full(7, 1e30, dtype=np.float32)),
    "weights in long double": in_place_of("w", lambda x: x.astype(np.longdouble)),
    "weights in half precision": in_place_of("w", lambda x: x.astype(np.float16)),
    "weights in double precision": in_place_of("w", lambda x: x.astype(np.float64)),
    "weights with swapped bytes": in_place_of("w", lambda x: x.astype(">f4")),
    "a buffer in long double": in_place_of("bn.running_mean", lambda x: x.astype(np.longdouble)),
    "a counter in floats": in_place_of("bn.num_batches_tracked", lambda x: x + 0.5),
    "a counter beyond all": in_place_of("bn.num_batches_tracked", lambda x: np.uint64(2**64 - 1)),
    "a counter at its end": in_place_of("bn.num_batches_tracked", lambda x: np.int64(2**63 - 1)),
    "a counter of truth": in_place_of("bn.num_batches_tracked", lambda x: np.bool_(True)),
}


@pytest.mark.parametrize(
    ("make", "sketch"),
    [(strategies.FedAvg, None), (strategies.FedAvg, 64), (strategies.FedMedian, None), (strategies.FedAdam, None)],
)
@pytest.mark.parametrize("name", TAKEOVERS)
def test_no_reply_changes_the_types_of_the_model_or_stops_the_others(name, sketch, make) -> None:
    """One of ten clients sends it in every round. The nine others train on, in the model's own types."""
    start, grid = with_batch_norm(), grid_of(10, {0: TAKEOVERS[name]})
    strategy = FilteredStrategy(make(), KeepAll(), sketch=sketch)
    for arrays, metrics in play(strategy, grid, start, 3):
        assert {key: array.numpy().dtype for key, array in arrays.items()} == {
            key: array.numpy().dtype for key, array in start.items()
        }
        assert metrics["flanders-kept"] >= 9
        assert metrics["flanders-unused-nodes"] in ([], [100])
        assert np.abs(flat(arrays)).max() < 100
        assert make is strategies.FedAdam or arrays["bn.running_var"].numpy().min() > -2


def test_honest_counters_far_apart_are_no_reason_to_refuse_a_client() -> None:
    """A client with thirty times as many batches is not refused."""
    many = in_place_of("bn.num_batches_tracked", lambda x: x + 29)
    ((_, metrics),) = play(
        FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(5, {2: many}), with_batch_norm(), 1
    )
    assert metrics["flanders-kept"] == 5
