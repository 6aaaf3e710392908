"""Descriptions of the arrays of the global model in Flower: name, shape and type.

`FilteredStrategy` uses the descriptions to check and decode the arrays of each reply. An array is *scored* if the
filter looks at it. Buffers and integer arrays are not scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import ClassVar

import numpy as np
from flwr.app import Array, ArrayRecord

from flanders.flower.stored_arrays import NUMPY, FileArray, in_memory
from flanders.hosts.model_arrays import WIDEST, BadReply, HostArray, HostArrays, Numbers, Vector, convert

LONGEST_HEADER = 4096
"""The most bytes that a serialised array may have besides its numbers. The header that NumPy writes is shorter."""


class LostReply(BadReply):
    """A reply that the server could not store. That is not the fault of the client."""


@dataclass(frozen=True)
class ModelArray(HostArray):
    """The description of one array of the global model."""

    def decode(self, array: Array) -> Numbers:
        """Return the numbers of a client's array in the type of the model. Raise `BadReply` if they cannot be used.

        A client may declare a wrong `array.dtype` or `array.shape`. Both are corrected to what the bytes really
        hold. Numbers of another precision are converted if they fit into the type of the model.
        """
        if stored_bytes(array) > self.most_bytes:
            raise BadReply(f"array {self.name!r} is too large: {stored_bytes(array):,} bytes")
        try:
            value = self._plain(array)
            value = array.numpy() if value is None else value
        except Exception as error:  # a client may send any bytes, which may cause any error
            raise BadReply(f"array {self.name!r} is not readable ({type(error).__name__})") from error
        numbers = self.check(value)
        if numbers is not value or array.dtype != self.dtype or array.shape != self.shape:
            array.dtype, array.shape = str(value.dtype), value.shape
        return numbers

    def _plain(self, array: Array) -> Numbers | None:
        """Return the numbers of an array if it has exactly the type and the shape of the model's array, else None.

        Most arrays can be read in this fast way: their header is compared with the expected header, not parsed.
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
        """Return an array in the type of the model: `array` itself if it has this type, else a converted one.

        `numbers` are the numbers of `array`, as `decode` returned them.
        """
        if array.dtype == self.dtype:
            return array
        return array.read_as(self.dtype) if isinstance(array, FileArray) else Array(numbers)

    @property
    def most_bytes(self) -> int:
        """The most bytes that a reply may send for this array."""
        return WIDEST * self.size + LONGEST_HEADER


@dataclass(frozen=True)
class ModelArrays(HostArrays):
    """The description of all arrays of the global model, in the server's order.

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
        """Return a copy of the model `record` whose scored arrays have the numbers of `vector`."""
        scored = {name: Array(numbers) for name, numbers in self.cut(vector, record).items()}
        return ArrayRecord({name: scored.get(name, array) for name, array in record.items()})

    def excess(self, record: Mapping[str, Array]) -> str:
        """Return in words what is too large in a reply: an array, or all arrays together. Empty if nothing is."""
        for array in self.arrays:
            if array.name in record and stored_bytes(record[array.name]) > array.most_bytes:
                return f"array {array.name!r} is too large: {stored_bytes(record[array.name]):,} bytes"
        total = sum(stored_bytes(array) for array in record.values())
        return f"too large: {total:,} bytes" if total > sum(array.most_bytes for array in self.arrays) else ""

    def in_own_types(self, record: Mapping[str, Array]) -> ArrayRecord | None:
        """Return the model that a strategy has made, in the types of the first global model.

        Strategies may change types. For example, an average of integers has fractions, and is rounded here. Return
        None if some numbers do not fit into their types.
        """
        arrays = {}
        for array in self.arrays:
            new = in_memory(record[array.name])
            if new.dtype != array.dtype or not array.scored:
                numbers = convert(new.numpy(), np.dtype(array.dtype))
                if numbers is None:
                    return None
                new = new if new.dtype == array.dtype else Array(numbers)
            arrays[array.name] = new
        return ArrayRecord(arrays)


@cache
def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header that NumPy writes in front of the numbers of an array of this type and shape."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def stored_bytes(array: Array) -> int:
    """Return the number of bytes in which an array was sent. An array on disk is not read for this."""
    return array.length if isinstance(array, FileArray) else len(array.data)
