"""Subclasses of Flower's `Array` whose numbers are stored elsewhere: in the matrix of the round, or in a file.

The matrix of the round is what the filter sees: it has a row for each reply. The arrays in a reply are replaced by
objects of these subclasses. So each model is in memory only once, or not at all. Strategies use such an object like
any other `Array`.
"""

from __future__ import annotations

import contextlib
import ctypes
from io import BytesIO
from pathlib import Path

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

NUMPY = "numpy.ndarray"
"""Flower's name for arrays in NumPy's own file format."""
LOST = "lost"
"""If the arrays of a reply were not stored, the reply has a single array with this name: a `LostArray`."""


class RowArray(Array):
    """An array whose numbers are part of a row of the round's matrix.

    Each read returns a copy, since some strategies change arrays in place.
    """

    def __init__(self, numbers: NDArray[np.float32], shape: tuple[int, ...]) -> None:
        self.__dict__["_numbers"] = numbers
        self.dtype, self.shape, self.stype = str(numbers.dtype), shape, NUMPY

    def numpy(self) -> NDArray[np.generic]:
        """Return a copy of the numbers."""
        numbers: NDArray[np.generic] = self.__dict__["_numbers"].reshape(self.shape).copy()
        return numbers

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes of the array, as Flower would send them."""
        buffer = BytesIO()
        np.save(buffer, self.numpy(), allow_pickle=False)
        return buffer.getvalue()


class FileArray(Array):
    """An array whose bytes, as a client sent them, are in a file: `length` bytes from `start` on.

    If `read_as` is the name of a type, the numbers are converted to this type when they are read.
    """

    def __init__(self, array: Array, path: Path, start: int, length: int, read_as: str = "") -> None:
        self.dtype, self.shape, self.stype = read_as or array.dtype, array.shape, array.stype
        self.__dict__.update(_path=path, _start=start, _length=length, _read_as=read_as)

    def read_as(self, dtype: str) -> FileArray:
        """Return the same array with its numbers converted to another type when they are read."""
        return FileArray(self, self.__dict__["_path"], self.__dict__["_start"], self.length, dtype)

    @property
    def length(self) -> int:
        """The number of bytes of the array in the file."""
        length: int = self.__dict__["_length"]
        return length

    def numpy(self) -> NDArray[np.generic]:
        """Read the numbers from the file."""
        if self.stype != NUMPY:
            raise TypeError(f"not an array of NumPy: {self.stype!r}")
        with open(self.__dict__["_path"], "rb") as file:
            file.seek(self.__dict__["_start"])
            numbers: NDArray[np.generic] = np.load(file, allow_pickle=False)
        read_as = self.__dict__["_read_as"]
        return numbers.astype(read_as, copy=False) if read_as else numbers

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes that the client sent, or with `read_as` the bytes of the converted array."""
        if self.__dict__["_read_as"]:
            return Array(self.numpy()).data
        with open(self.__dict__["_path"], "rb") as file:
            file.seek(self.__dict__["_start"])
            return file.read(self.length)


class LostArray(Array):
    """Takes the place of all arrays of a reply that were not stored, and says why."""

    def __init__(self, why: str, *, too_large: bool) -> None:
        self.dtype, self.shape, self.stype, self.data = "", (), NUMPY, b""
        self.__dict__.update(_why=why, _too_large=too_large)

    @property
    def why(self) -> str:
        """Why the arrays were not stored, in words."""
        return str(self.__dict__["_why"])

    @property
    def too_large(self) -> bool:
        """Whether the client sent too much. If False, the server could not store the reply, e.g. on a full disk."""
        return bool(self.__dict__["_too_large"])


def in_memory(array: Array) -> Array:
    """Return an array with numbers of its own: a copy if `array` reads its numbers from the matrix or a file."""
    return Array(array.numpy()) if isinstance(array, RowArray | FileArray) else array


def return_freed_memory() -> None:
    """Return freed memory to the system. GNU's C library may otherwise keep it for this process."""
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no `malloc_trim`
        ctypes.CDLL(None).malloc_trim(0)
