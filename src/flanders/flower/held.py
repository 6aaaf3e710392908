"""Arrays of replies whose numbers are kept once: in the round's matrix, or in a file."""

from __future__ import annotations

import contextlib
import ctypes
from io import BytesIO
from pathlib import Path

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

NUMPY = "numpy.ndarray"
"""How Flower calls arrays in NumPy's own file format."""


class RowArray(Array):
    """An array that lies in a row of the round's matrix.

    Strategies read it as they read any array, and get a copy each time, for some of them calculate in place.
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
        """The array as Flower would send it."""
        buffer = BytesIO()
        np.save(buffer, self.numpy(), allow_pickle=False)
        return buffer.getvalue()


class FileArray(Array):
    """An array whose bytes, as a client sent them, are part of a file."""

    def __init__(self, array: Array, path: Path, start: int, length: int) -> None:
        self.dtype, self.shape, self.stype = array.dtype, array.shape, array.stype
        self.__dict__.update(_path=path, _start=start, length=length)

    def numpy(self) -> NDArray[np.generic]:
        """Read the numbers from the file."""
        if self.stype != NUMPY:
            raise TypeError(f"not an array of NumPy: {self.stype!r}")
        with open(self.__dict__["_path"], "rb") as file:
            file.seek(self.__dict__["_start"])
            numbers: NDArray[np.generic] = np.load(file, allow_pickle=False)
        return numbers

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The array as the client sent it."""
        with open(self.__dict__["_path"], "rb") as file:
            file.seek(self.__dict__["_start"])
            return file.read(self.__dict__["length"])


def trim() -> None:
    """Give the memory of what has been freed back to the system, which GNU's C library may keep for itself."""
    with contextlib.suppress(OSError, AttributeError):  # another system, another library
        ctypes.CDLL(None).malloc_trim(0)


def settled(array: Array) -> Array:
    """Return an array that needs neither matrix nor file any more."""
    return Array(array.numpy()) if isinstance(array, RowArray | FileArray) else array
