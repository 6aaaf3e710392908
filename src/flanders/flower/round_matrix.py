"""The matrix that the filter sees in a round. Its rows are the models of the replies, or sketches of these models.

A model here means its *scored* arrays, those that the filter looks at. A sketch is a short vector that is computed
from a model with secret random numbers. The distances and angles between sketches are about the same as those
between the models. Rows are filled array by array, so that memory never holds a second copy of a whole model.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from flanders.flower.model_arrays import ModelArray, ModelArrays
from flanders.flower.stored_arrays import RowArray, return_freed_memory
from flanders.hosts.model_arrays import Vector
from flanders.linalg.sketch import StreamedSketch


class RoundMatrix(ABC):
    """The matrix of one round. It is filled reply by reply, and then read by the filter."""

    numbers: NDArray[np.floating]
    """The matrix itself. It may have more rows than there are replies."""

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each scored array, by its name; empty if the rows are sketches."""
        return {}

    @abstractmethod
    def prepare_row(self, row: int) -> None:
        """Prepare a row for a reply. A reply that was refused half-way may have left numbers in the row."""

    @abstractmethod
    def put(self, row: int, place: ModelArray, numbers: Vector, array: Array) -> Array:
        """Enter one decoded array of a reply into a row. Return the array that the wrapped strategy gets.

        `place` says where in the row the array belongs, `numbers` are its decoded numbers, and `array` is the array
        as it was sent.
        """

    @abstractmethod
    def row_of(self, arrays: Mapping[str, Array]) -> Vector:
        """Return the arrays of a model in the form of a row of the matrix."""


class ReusedMemory:
    """Keeps a small matrix after its round, so that the next round can use the same memory.

    With models of ordinary size, the system takes longer to provide new memory than `FilteredStrategy` takes for
    all its other work. If anything else still refers to the matrix, the next round gets new memory.
    """

    LARGEST = 2**26
    """A matrix with more bytes is not used again. It takes long to fill, so using it again would save little."""

    def __init__(self) -> None:
        self._kept: NDArray[np.float32] | None = None

    def matrix(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a matrix with at least this many rows. Its numbers are arbitrary."""
        if self._kept is not None:
            fits = self._kept.shape[0] >= rows and self._kept.shape[1] == columns
            if fits and sys.getrefcount(self._kept) == 2:  # one for `self._kept`, one for the argument
                return self._kept
        fresh = np.empty((rows, columns), dtype=np.float32)
        self._kept = fresh if fresh.nbytes <= self.LARGEST else None
        return fresh


class WholeMatrix(RoundMatrix):
    """A matrix of whole models in float32, with a row per reply and a column per number of a model.

    The numbers of float32 arrays are stored only in the matrix. The arrays that `put` returns read them from there.
    """

    LARGE = 2**20
    """If a matrix has at least this many columns, freed memory is returned to the system before each reply is read.
    With small models, this would take long compared with the reading."""

    def __init__(self, model: ModelArrays, rows: int, memory: ReusedMemory | None = None) -> None:
        self.model = model
        self.numbers = (ReusedMemory() if memory is None else memory).matrix(rows, model.size)

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each scored array, by its name."""
        return self.model.layers

    def prepare_row(self, row: int) -> None:
        """Return freed memory to the system if models are large. The row itself will be overwritten completely."""
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
    """A matrix of sketches, with a row per reply and `width` columns. The method is called CountSketch.

    The columns are called buckets. Each number of a model is multiplied by a random sign and added to a random
    bucket. `secret` is the seed of these random choices. They are the same in every round of a run.
    """

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
