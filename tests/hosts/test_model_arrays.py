from __future__ import annotations

import numpy as np
import pytest

from flanders.hosts.model_arrays import BadReply, HostArray, HostArrays


def batch_norm_model(dtype="float32"):
    rng = np.random.default_rng(0)
    shapes = {"w": (6, 7), "bn.running_mean": (7,), "v": (7,)}
    start = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    return {**start, "bn.num_batches_tracked": np.asarray(3)}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_flattening_and_back_keeps_every_bit(dtype) -> None:
    start = batch_norm_model(dtype)
    arrays = HostArrays.of(start)
    vector = arrays.flatten(start, arrays.float_type(start))
    assert vector.dtype == ("float64" if dtype == "float64" else "float32")
    assert vector.shape == (arrays.size,) == (49,)
    back = arrays.cut(vector, start)
    assert list(back) == ["w", "v"]
    for name in back:
        np.testing.assert_array_equal(back[name], start[name], strict=True)


def test_only_scored_arrays_are_cut_out() -> None:
    start = batch_norm_model()
    arrays = HostArrays.of(start)
    changed = arrays.cut(np.zeros(arrays.size, dtype=np.float32), start)
    assert {name: numbers.size for name, numbers in changed.items()} == {"w": 42, "v": 7}
    assert arrays.layers == {"w.kernel": 42, "w.bias": 7}  # a plain list: the shapes tell that this is one layer
    assert not changed["w"].any()


def test_a_number_too_large_for_float32_becomes_infinite() -> None:
    start = {"w": np.array([1.0, 1e300])}
    np.testing.assert_array_equal(HostArrays.of(start).flatten(start), [1.0, np.inf])


@pytest.mark.parametrize(
    ("dtype", "number", "reason"),
    [
        ("float32", np.nan, "array 'a' is not finite"),
        ("float64", -np.inf, "array 'a' is not finite"),
        ("float16", 1e6, "array 'a' has numbers outside the range of float16"),
        ("float32", 1e300, "array 'a' has numbers outside the range of float32"),
        ("float64", 1e300, "array 'a' has numbers outside the range of float32"),
        ("int8", 300, "array 'a' has numbers outside the range of int8"),
    ],
)
def test_a_refusal_says_whether_a_number_is_not_finite_or_too_large(dtype, number, reason) -> None:
    start = 0 if dtype.startswith("float") else -1
    with pytest.raises(BadReply) as refused:
        HostArray("a", (1,), start, dtype).check(np.array([number]))
    assert str(refused.value) == reason
