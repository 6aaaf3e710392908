"""The global model as Flower holds it: which arrays there are, and where each stands in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from flanders.checks import InputError

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""How PyTorch ends the names of what batch normalisation counts rather than learns."""
HEADER = 4096
"""Bytes that a serialised array may have beyond its numbers."""
NAME = 60
"""Letters of a name that are told at most."""

Numbers = NDArray[Any]


class BadReply(Exception):
    """A reply that cannot be used; says why, in a few words."""


def is_buffer(name: str) -> bool:
    """Tell by its name whether an array is a buffer of batch normalisation, which is not trained.

    Examples
    --------
    >>> is_buffer("layer1.0.bn1.running_var"), is_buffer("layer1.0.bn1.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in BUFFERS


@dataclass(frozen=True)
class Piece:
    """One array of the model."""

    name: str
    shape: tuple[int, ...]
    start: int
    """Where it begins in the flat vector; -1 if it is aggregated but not scored."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def scored(self) -> bool:
        """Whether filters look at it."""
        return self.start >= 0

    @property
    def place(self) -> slice:
        """Its numbers in the flat vector."""
        return slice(self.start, self.start + self.size)

    def decode(self, array: Array) -> Numbers:
        """Return the numbers of a reply's array, or complain of whatever is wrong with it.

        What a client declares of its array is not looked at: only what its bytes turn out to be. Floats may have
        any width, as strategies change it. What is only aggregated may be of any real type: the average of
        integers, which is sent next, has fractions.
        """
        if stored_bytes(array) > 16 * self.size + HEADER:
            raise BadReply(f"array {self.name!r} is too large: {stored_bytes(array):,} bytes")
        try:
            value = array.numpy()
        except Exception as error:  # anything may be wrong with bytes that a client sends
            raise BadReply(f"array {self.name!r} is not readable ({type(error).__name__})") from error
        if not isinstance(value, np.ndarray) or value.shape != self.shape:
            raise BadReply(f"array {self.name!r} has shape {getattr(value, 'shape', None)} instead of {self.shape}")
        if value.dtype.kind not in ("f" if self.scored else "fiub"):
            raise BadReply(f"array {self.name!r} has type {value.dtype}")
        with np.errstate(over="ignore"):  # a float64 that no float32 can hold is not finite
            narrow = value.astype(np.float32, copy=False) if self.scored else value
        if not np.isfinite(narrow).all():
            raise BadReply(f"array {self.name!r} is not finite")
        return value


@dataclass(frozen=True)
class Plan:
    """All arrays of a model, in the server's order, and the size d of the vector that filters see."""

    pieces: tuple[Piece, ...]
    size: int

    @classmethod
    def of(cls, arrays: ArrayRecord, unscored: Callable[[str], bool] = is_buffer) -> Plan:
        """Plan the global model: floats are scored, but for those that `unscored` names."""
        pieces, size = [], 0
        for name, array in arrays.items():
            scored = np.dtype(array.dtype).kind == "f" and not unscored(name)
            pieces.append(Piece(name, tuple(array.shape), size if scored else -1))
            size += pieces[-1].size if scored else 0
        if size == 0:
            raise InputError(
                f"There is nothing to score in the {len(pieces)} arrays of the global model: a filter looks at "
                "float arrays that are not buffers. Check `initial_arrays`, and `unscored` if you pass it."
            )
        return cls(tuple(pieces), size)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all arrays."""
        return tuple(piece.name for piece in self.pieces)

    def difference(self, arrays: Mapping[str, Array]) -> str:
        """Return in words how the server's own arrays differ from these in name or shape; empty if they fit."""
        if names := self.difference_of_names(arrays):
            return names
        for piece in self.pieces:
            if tuple(arrays[piece.name].shape) != piece.shape:
                return f"{piece.name!r} of shape {tuple(arrays[piece.name].shape)} instead of {piece.shape}"
        return ""

    def difference_of_names(self, names: Iterable[str]) -> str:
        """Return in words which names are missing and which are unknown; empty if none is."""
        found, expected = set(names), set(self.names)
        parts = (("missing", expected - found), ("unknown", found - expected))
        return ", ".join(f"{text} {list_names(sorted(some))}" for text, some in parts if some)

    def check(self, arrays: Mapping[str, Array]) -> None:
        """Complain if the model to start from holds what no reply may hold."""
        for piece in self.pieces:
            try:
                piece.decode(arrays[piece.name])
            except BadReply as why:
                raise InputError(
                    f"`initial_arrays` cannot be trained from: {why}. Start from another model."
                ) from why

    def scored(self, arrays: Mapping[str, Array]) -> Iterator[tuple[Piece, Numbers]]:
        """Yield what filters see of the server's own arrays, one layer at a time."""
        for piece in self.pieces:
            if piece.scored:
                yield piece, arrays[piece.name].numpy()

    def rest_is_finite(self, arrays: Mapping[str, Array]) -> bool:
        """Tell whether the server's own arrays are finite where filters do not look."""
        return all(bool(np.isfinite(arrays[p.name].numpy()).all()) for p in self.pieces if not p.scored)


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return a few names and how many more there are.

    Examples
    --------
    >>> list_names(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(repr(name[:NAME]) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def stored_bytes(array: Array) -> int:
    """Return how many bytes an array has been sent as, without reading those that are on disk."""
    length: int | None = getattr(array, "length", None)
    return len(array.data) if length is None else length
