"""From the arrays that Flower's clients send to NumPy's, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord

from flanders.flower.stored_arrays import FileArray
from flanders.hosts.model_arrays import BadReply, ModelArray, Numbers

WIDEST = 16
"""The most bytes that one number of a reply may take: the width of NumPy's widest float."""
LONGEST_HEADER = 4096
"""The most bytes that a serialised array may have besides its numbers. NumPy's own header is shorter than this."""


def decode(place: ModelArray, array: Array) -> Numbers:
    """Return the numbers of a client's array, or raise `BadReply` if they cannot be used.

    The type and the shape that the client declares are ignored: only its bytes count.
    """
    if stored_bytes(array) > WIDEST * place.size + LONGEST_HEADER:
        raise BadReply(f"array {place.name!r} is too large: {stored_bytes(array):,} bytes")
    try:
        value = array.numpy()
    except Exception as error:  # a client may send any bytes, so that any error is possible
        raise BadReply(f"array {place.name!r} is not readable ({type(error).__name__})") from error
    return place.check(value)


def stored_bytes(array: Array) -> int:
    """Return the number of bytes that an array was sent as. Arrays on disk are not read for this."""
    return array.length if isinstance(array, FileArray) else len(array.data)


def as_record(arrays: Mapping[str, Array | Numbers]) -> ArrayRecord:
    """Return arrays of Flower or NumPy as a record of Flower."""
    return ArrayRecord({name: Array(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()})
