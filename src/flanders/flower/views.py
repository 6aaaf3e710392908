"""What a filter sees of models: all scored parameters, or a secret sketch of them.

Both take a reply's arrays one at a time, so that no second copy of a model is ever made.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from flanders.flower.held import RowArray, trim
from flanders.flower.plan import Numbers, Piece, Plan

BLOCK = 2**20
"""Parameters sketched at a time."""


class RoundView(ABC):
    """The round's matrix in the making, a row for each reply."""

    matrix: NDArray[np.floating]

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each array, by its name; none where they are mixed."""
        return {}

    @abstractmethod
    def put(self, row: int, piece: Piece, numbers: Numbers, array: Array) -> Array:
        """Enter an array of a reply, and return the array that the wrapped strategy is to see."""

    @abstractmethod
    def of_model(self, arrays: Mapping[str, Array]) -> NDArray[np.floating]:
        """Return what the filter sees of the server's own arrays."""

    def begin(self, row: int) -> None:  # noqa: B027
        """Make a row ready, whatever was in it."""


class Reused:
    """Memory for a matrix of float32 a round, the same again if it is not large and nobody has kept a part of it.

    For models of ordinary size the system's work to provide new memory takes longer than the wrapper's own.
    """

    LARGEST = 2**26
    """Bytes that are kept from round to round at most."""

    def __init__(self) -> None:
        self._kept: NDArray[np.float32] | None = None

    def matrix(self, rows: int, columns: int) -> NDArray[np.float32]:
        """Return a matrix with at least so many rows; what is in it is left over."""
        if self._kept is not None:
            fits = self._kept.shape[0] >= rows and self._kept.shape[1] == columns
            if fits and sys.getrefcount(self._kept) == 2:  # held by `self`, and by the question
                return self._kept
        fresh = np.empty((rows, columns), dtype=np.float32)
        self._kept = fresh if fresh.nbytes <= self.LARGEST else None
        return fresh


class Whole(RoundView):
    """All scored parameters in float32: `(m, d)`.

    The numbers of float32 arrays are kept in the matrix alone, and the arrays that are returned read them there.
    """

    LARGE = 2**20
    """Parameters from which it is worth while to give back what a reply has taken before the next one is read."""

    def __init__(self, plan: Plan, rows: int, memory: Reused | None = None) -> None:
        self.plan = plan
        self.matrix = (Reused() if memory is None else memory).matrix(rows, plan.size)

    @property
    def layers(self) -> dict[str, int]:
        """The number of columns of each scored array."""
        return {piece.name: piece.size for piece in self.plan.pieces if piece.scored}

    def begin(self, row: int) -> None:
        """Make room for a large row."""
        if self.plan.size >= self.LARGE:
            trim()

    def put(self, row: int, piece: Piece, numbers: Numbers, array: Array) -> Array:
        """Copy an array into its place in the row."""
        self.matrix[row, piece.place] = numbers.ravel()
        same = numbers.dtype == np.float32
        return RowArray(self.matrix[row, piece.place], piece.shape) if same else array

    def of_model(self, arrays: Mapping[str, Array]) -> NDArray[np.floating]:
        """Return the scored parameters as one vector."""
        vector = np.empty(self.plan.size, dtype=np.float32)
        with np.errstate(over="ignore"):  # whoever asks looks for what is not finite
            for piece, numbers in self.plan.scored(arrays):
                vector[piece.place] = numbers.ravel()
        return vector


class Sketched(RoundView):
    """A CountSketch of all scored parameters: `(m, width)`, the same secret one in every round of a run.

    Every parameter is added, with a random sign, to a random one of `width` buckets. Inner products stay what they
    were, up to noise of relative size about 1 / sqrt(width). Signs and buckets follow from the secret and are
    drawn anew for each array, a block at a time, so that they take no memory.
    """

    def __init__(self, plan: Plan, rows: int, width: int, secret: int) -> None:
        self.plan, self.width, self.secret = plan, width, secret
        self.matrix = np.zeros((rows, width))

    def begin(self, row: int) -> None:
        """Empty the row's buckets."""
        self.matrix[row] = 0.0

    def put(self, row: int, piece: Piece, numbers: Numbers, array: Array) -> Array:
        """Add an array to the row's buckets."""
        self._add(self.matrix[row], piece, numbers)
        return array

    def of_model(self, arrays: Mapping[str, Array]) -> NDArray[np.floating]:
        """Return the sketch of the scored parameters."""
        total = np.zeros(self.width)
        with np.errstate(invalid="ignore"):
            for piece, numbers in self.plan.scored(arrays):
                self._add(total, piece, numbers)
        return total

    def _add(self, total: NDArray[np.floating], piece: Piece, numbers: Numbers) -> None:
        flat = numbers.ravel()
        rng = np.random.default_rng([self.secret, piece.start])
        for first in range(0, flat.size, BLOCK):
            block = flat[first : first + BLOCK].astype(np.float64)
            drawn = rng.integers(0, 2 * self.width, size=block.size, dtype=np.uint32)
            block *= 1.0 - 2.0 * (drawn & 1)
            total += np.bincount(drawn >> 1, weights=block, minlength=self.width)
