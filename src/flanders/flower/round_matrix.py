"""The matrix that a filter sees, a row for each reply: all scored numbers, or a secret sketch of them.

Rows are filled array by array, so that no second copy of a model is ever made.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from flanders.flower.model_arrays import ModelArray, ModelArrays, Vector
from flanders.flower.stored_arrays import RowArray, return_freed_memory
from flanders.linalg.sketch import StreamedSketch


class RoundMatrix(ABC):
    """The matrix of one round, while it is filled and after."""

    numbers: NDArray[np.floating]

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each scored array, by its name; empty if the columns mix arrays."""
        return {}

    @abstractmethod
    def prepare_row(self, row: int) -> None:
        """Prepare a row for a reply. A refused reply may have left numbers in it."""

    @abstractmethod
    def put(self, row: int, place: ModelArray, numbers: Vector, array: Array) -> Array:
        """Enter one decoded array of a reply, and return what the wrapped strategy sees in its place."""

    @abstractmethod
    def row_of(self, arrays: Mapping[str, Array]) -> Vector:
        """Return the row that the server's own model would have."""


class ReusedMemory:
    """Memory for the matrix of each round. It is used again if it is small and nothing refers to a part of it.

    With models of ordinary size, the system takes longer to provide new memory than the wrapper takes for the
    rest of its work.
    """

    LARGEST = 2**26
    """The most bytes that are kept from round to round. Larger matrices take long to fill in any case."""

    def __init__(self) -> None:
        self._kept: NDArray[np.float32] | None = None

    def matrix(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a matrix with at least this many rows. It holds whatever was there before."""
        if self._kept is not None:
            fits = self._kept.shape[0] >= rows and self._kept.shape[1] == columns
            if fits and sys.getrefcount(self._kept) == 2:  # one is `self._kept`, one is this call
                return self._kept
        fresh = np.empty((rows, columns), dtype=np.float32)
        self._kept = fresh if fresh.nbytes <= self.LARGEST else None
        return fresh


class WholeMatrix(RoundMatrix):
    """All scored numbers in float32: `(m, d)`.

    The numbers of float32 arrays are stored only here. The arrays that `put` returns read them from the matrix.
    """

    LARGE = 2**20
    """The model size from which freed memory is returned before each reply. For small models it takes too long."""

    def __init__(self, model: ModelArrays, rows: int, memory: ReusedMemory | None = None) -> None:
        self.model = model
        self.numbers = (ReusedMemory() if memory is None else memory).matrix(rows, model.size)

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each scored array."""
        return self.model.layers

    def prepare_row(self, row: int) -> None:
        """Make room for a large reply. Every number of the row will be overwritten."""
        if self.numbers.shape[1] >= self.LARGE:
            return_freed_memory()

    def put(self, row: int, place: ModelArray, numbers: Vector, array: Array) -> Array:
        """Copy an array to its columns."""
        self.numbers[row, place.columns] = numbers.ravel()
        if numbers.dtype == np.float32:
            return RowArray(self.numbers[row, place.columns], place.shape)
        return place.in_own_type(array, numbers)

    def row_of(self, arrays: Mapping[str, Array]) -> Vector:
        """Return the scored arrays as one vector."""
        return self.model.flatten(arrays)


class SketchedMatrix(RoundMatrix):
    """A CountSketch of all scored numbers: `(m, width)`, the same secret sketch in every round of a run."""

    def __init__(self, model: ModelArrays, rows: int, width: int, secret: int) -> None:
        self.model, self.sketch = model, StreamedSketch(width, secret)
        self.numbers = np.zeros((rows, width))

    def prepare_row(self, row: int) -> None:
        """Empty the buckets of the row."""
        self.numbers[row] = 0.0

    def put(self, row: int, place: ModelArray, numbers: Vector, array: Array) -> Array:
        """Add an array to the buckets of the row."""
        self.sketch.add(self.numbers[row], numbers, place.start)
        return place.in_own_type(array, numbers)

    def row_of(self, arrays: Mapping[str, Array]) -> Vector:
        """Return the sketch of the scored arrays."""
        total = np.zeros(self.sketch.width)
        with np.errstate(invalid="ignore"):
            for place, numbers in self.model.scored(arrays):
                self.sketch.add(total, numbers, place.start)
        return total
