"""`unpickle`, which reads the pickle files of CIFAR without running code from them.

A pickle file can name any function, and Python's unpickler calls that function. Here a pickle may use only the few
names that an array of bytes needs. Each of these names is replaced by a harmless class of this module. NumPy's own
constructors are not called, since a hostile dtype could make them read bytes as pointers to objects.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flanders.checks import InputError


class PickledDtype:
    """The replacement of `numpy.dtype`. It holds only the name of the dtype."""

    __slots__ = ("name",)

    def __init__(self, name: object, *_: object) -> None:
        self.name = name.decode("ascii") if isinstance(name, bytes) else str(name)

    def __setstate__(self, state: Any) -> None:
        """Ignore the state, e.g. the byte order. An array of bytes does not need it."""


class PickledArray:
    """The replacement of `numpy.ndarray`, and of NumPy's function that makes an empty array. It holds bytes."""

    __slots__ = ("values",)

    def __init__(self, *_: object) -> None:
        self.values: NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, PickledDtype) or dtype.name not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError("it contains an array of another type than uint8")
        if not isinstance(content, bytes) or len(content) != math.prod(shape):
            raise pickle.UnpicklingError("the shape of an array does not fit its content")
        values = np.frombuffer(content, dtype=np.uint8)
        self.values = values.reshape(shape, order="F" if fortran else "C")


class PickledBytes:
    """The replacement of `_codecs.encode`, with which Python 3 stores bytes in old pickle protocols."""

    __slots__ = ()

    def __new__(cls, text: str, encoding: str = "latin1") -> bytes:  # type: ignore[misc]  # noqa: D102
        if encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError(f"it contains the unexpected encoding {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("bytes have no state")


STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): PickledArray,
    ("numpy", "dtype"): PickledDtype,
    ("_codecs", "encode"): PickledBytes,
}
"""The names that a pickle may use, and the class that replaces each of them."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that builds byte arrays, lists, dicts, tuples, bytes, strings and numbers, and nothing else."""

    def find_class(self, module: str, name: str) -> type:
        """Return the class that replaces a name. Raise an error if the name is not allowed."""
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no dataset needs")
        return STAND_INS[module, name]


def unpickle(path: Path, content: bytes) -> dict[str, Any]:
    """Return the dict in the `content` of a pickle file. Its keys become strings. Its arrays are of type uint8."""
    try:
        loaded = RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(loaded, dict):
            raise pickle.UnpicklingError("it holds no dict")
        return {
            key.decode("ascii") if isinstance(key, bytes) else str(key): (
                value.values if isinstance(value, PickledArray) else value
            )
            for key, value in loaded.items()
        }
    except Exception as error:  # a broken pickle raises almost anything
        raise InputError(
            f"{path} was not read, since its content is broken or not safe ({error}). "
            "Get the file again, or use the dataset's binary version."
        ) from error
