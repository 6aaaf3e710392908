"""The arrays of the global model in Flower's form: how replies are decoded, and how records are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord

from flanders.checks import InputError
from flanders.flower.stored_arrays import NUMPY, FileArray, in_memory
from flanders.hosts.model_arrays import (
    LONGEST_NAME,
    WIDEST,
    BadReply,
    HostArray,
    HostArrays,
    Numbers,
    Vector,
    convert,
    is_buffer,
    list_names,
)

__all__ = [
    "LONGEST_NAME",
    "BadReply",
    "LostReply",
    "ModelArray",
    "ModelArrays",
    "Numbers",
    "Vector",
    "convert",
    "is_buffer",
    "list_names",
    "stored_bytes",
]

LONGEST_HEADER = 4096
"""The most bytes that a serialised array may have besides its numbers. NumPy's own header is shorter than this."""


class LostReply(BadReply):
    """A reply that the server has lost, which is not the fault of the client."""


@dataclass(frozen=True)
class ModelArray(HostArray):
    """One array of the global model."""

    def decode(self, array: Array) -> Numbers:
        """Return the numbers of a client's array in the model's type, or raise `BadReply` if they cannot be used.

        The type and the shape that the client declares are replaced by those of its bytes. Numbers of another width
        are converted. They have to fit.
        """
        if stored_bytes(array) > self.most_bytes:
            raise BadReply(f"array {self.name!r} is too large: {stored_bytes(array):,} bytes")
        try:
            value = self._plain(array)
            value = array.numpy() if value is None else value
        except Exception as error:  # a client may send any bytes, so that any error is possible
            raise BadReply(f"array {self.name!r} is not readable ({type(error).__name__})") from error
        numbers = self.check(value)
        if numbers is not value or array.dtype != self.dtype or array.shape != self.shape:
            array.dtype, array.shape = str(value.dtype), value.shape
        return numbers

    def _plain(self, array: Array) -> Numbers | None:
        """Return the numbers of an array whose bytes have exactly the form of the model's; None if they have not.

        Such bytes need no parser: the header is known, and the numbers follow it.
        """
        if type(array) is not Array or array.stype != NUMPY:
            return None
        header = _header(self.dtype, self.shape)
        if len(array.data) != len(header) + self.size * np.dtype(self.dtype).itemsize:
            return None
        if not array.data.startswith(header):
            return None
        return np.frombuffer(array.data, self.dtype, offset=len(header)).reshape(self.shape)

    def in_own_type(self, array: Array, numbers: Numbers) -> Array:
        """Return a decoded array such that strategies read its numbers in the model's type."""
        if array.dtype == self.dtype:
            return array
        return array.read_as(self.dtype) if isinstance(array, FileArray) else Array(numbers)

    @property
    def most_bytes(self) -> int:
        """The most bytes that a reply may send for this array."""
        return WIDEST * self.size + LONGEST_HEADER


@dataclass(frozen=True)
class ModelArrays(HostArrays):
    """All arrays of the global model, in the server's order.

    Examples
    --------
    >>> record = ArrayRecord({"w": Array(np.ones((2, 2), np.float32)), "b": Array(np.zeros(2, np.float32))})
    >>> model = ModelArrays.of(record)
    >>> model.flatten(record)
    array([1., 1., 1., 1., 0., 0.], dtype=float32)
    >>> model.unflatten(np.arange(6, dtype=np.float32), record)["b"].numpy()
    array([4., 5.], dtype=float32)
    """

    arrays: tuple[ModelArray, ...]
    kind: ClassVar[type[HostArray]] = ModelArray

    def unflatten(self, vector: Vector, record: Mapping[str, Array]) -> ArrayRecord:
        """Return a model with these numbers in its scored arrays. All else, types included, is as in `record`."""
        scored = {name: Array(numbers) for name, numbers in self.cut(vector, record).items()}
        return ArrayRecord({name: scored.get(name, array) for name, array in record.items()})

    def excess(self, record: Mapping[str, Array]) -> str:
        """Return in words which arrays of a reply are larger than they may be; empty if none is."""
        for array in self.arrays:
            if array.name in record and stored_bytes(record[array.name]) > array.most_bytes:
                return f"array {array.name!r} is too large: {stored_bytes(record[array.name]):,} bytes"
        total = sum(stored_bytes(array) for array in record.values())
        return f"too large: {total:,} bytes" if total > sum(array.most_bytes for array in self.arrays) else ""

    def check_start(self, record: Mapping[str, Array]) -> None:
        """Complain if the initial model holds numbers that no reply may hold."""
        for array in self.arrays:
            try:
                array.decode(record[array.name])
            except BadReply as why:
                raise InputError(
                    f"`initial_arrays` cannot be trained from: {why}. Start from another model."
                ) from why

    def in_own_types(self, record: Mapping[str, Array]) -> ArrayRecord | None:
        """Return the server's own model in the types of these arrays; None if some numbers do not fit into them.

        Strategies change types: an average of integers has fractions, for example. Integers are rounded here.
        """
        arrays = {}
        for array in self.arrays:
            found = in_memory(record[array.name])
            if found.dtype != array.dtype or not array.scored:
                numbers = convert(found.numpy(), np.dtype(array.dtype))
                if numbers is None:
                    return None
                found = found if found.dtype == array.dtype else Array(numbers)
            arrays[array.name] = found
        return ArrayRecord(arrays)


@cache
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header that NumPy writes in front of the numbers of such an array."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def stored_bytes(array: Array) -> int:
    """Return the number of bytes that an array was sent as. Arrays on disk are not read for this."""
    return array.length if isinstance(array, FileArray) else len(array.data)
