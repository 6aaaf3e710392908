"""Functions for arrays of any library that follows the array API standard, such as NumPy, PyTorch, CuPy and JAX.

"Host" in the name of a function means the main memory. All arrays of NumPy are in main memory. A device, such as a
GPU, has a memory of its own.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array = Any
"""An array of any library that follows the Python array API standard."""

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
IntVector = NDArray[np.int64]
BoolVector = NDArray[np.bool_]


def to_numpy(array: Array) -> NDArray[Any]:
    """Return an array of any library as a NumPy array. An array on a device is copied to main memory."""
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu().numpy())
    if array_api_compat.is_cupy_array(array):
        return np.asarray(array.get())
    return np.asarray(array)


def without_graph(array: Array) -> Array:
    """Return a PyTorch tensor without its gradient graph. Any other array is returned as it is."""
    return array.detach() if getattr(array, "requires_grad", False) else array


def is_on_host(array: Array) -> bool:
    """Whether an array is a NumPy array, or a PyTorch tensor in main memory.

    For arrays of other libraries the result is False, even if they are in main memory, like those of JAX on a CPU.
    """
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type == "cpu")
    return bool(array_api_compat.is_numpy_array(array))


def on_host(array: Array) -> Array:
    """Return a CPU tensor of PyTorch as a NumPy array that shares its memory. Return any other array as it is.

    NumPy sorts and sums arrays several times faster than PyTorch does on a CPU.
    """
    if array_api_compat.is_torch_array(array) and array.device.type == "cpu":
        return array.detach().numpy()
    return array


def like(values: object, array: Array, dtype: object = None) -> Array:
    """Return `values` as an array of the same library, device and dtype as `array`.

    If `dtype` is given, the result has this dtype instead.
    """
    xp, dtype = array_api_compat.array_namespace(array), array.dtype if dtype is None else dtype
    if isinstance(values, np.ndarray) and array_api_compat.is_torch_array(array) and array.device.type == "cuda":
        # The GPU gets the numbers after the work that it has to do already. The host does not wait for this: when
        # `to` returns, CUDA has its own copy of them.
        return xp.asarray(values, dtype=dtype, copy=True).to(array.device, non_blocking=True)
    return xp.asarray(values, dtype=dtype, device=array_api_compat.device(array))


def all_finite(*arrays: Array) -> bool:
    """Whether all numbers of some arrays of the same library and device are finite."""
    xp = array_api_compat.array_namespace(*arrays)
    if not is_on_host(arrays[0]):
        # NaN or infinity would be in the sums. On a GPU, `isfinite` reads an array several times. The host waits
        # for each number that it copies from a GPU, so it copies only one.
        first, *others = (xp.sum(array) for array in arrays)
        if np.isfinite(float(sum(others, first))):
            return True
    return all(bool(xp.all(xp.isfinite(array))) for array in arrays)


def copied(array: Array) -> Array:
    """Return a copy of an array."""
    return array_api_compat.array_namespace(array).asarray(array, copy=True)


def normals_like(array: Array, rng: np.random.Generator) -> Array:
    """Return independent standard normal numbers, in the shape, dtype, library and device of `array`.

    For a tensor on a GPU, PyTorch draws the numbers on the GPU, with a seed from `rng`. This is a hundred times
    faster than NumPy. But the numbers are not those that the same `rng` gives on a CPU.
    """
    xp = array_api_compat.array_namespace(array)
    if array_api_compat.is_torch_array(array) and not is_on_host(array):
        generator = xp.Generator(device=array.device).manual_seed(int(rng.integers(2**63)))
        return xp.randn(array.shape, generator=generator, dtype=array.dtype, device=array.device)
    single = array.dtype == xp.float32
    return like(rng.standard_normal(array.shape, dtype=np.float32 if single else np.float64), array)


def index_like(index: object, array: Array) -> Array:
    """Return row or column numbers as an array that can index `array`. It has the library and device of `array`."""
    xp = array_api_compat.array_namespace(array)
    return like(index, array, xp.__array_namespace_info__().default_dtypes()["indexing"])


def widest_float(xp: ModuleType) -> object:
    """Return float64, or float32 if the library has no float64, like JAX with its default settings."""
    real = xp.__array_namespace_info__().dtypes(kind="real floating")
    return real.get("float64", xp.float32)


def rounding_of(array: Array) -> float:
    """Return the machine epsilon of the widest float type in the library of `array`. Sums use this type."""
    xp = array_api_compat.array_namespace(array)
    return float(xp.finfo(widest_float(xp)).eps)
