"""CountSketch: short random summaries of long vectors, called sketches.

Each parameter of a vector gets a random sign and a random bucket. The sketch of the vector has one number for each
bucket: the sum of the parameters in this bucket, with their signs. The inner product of two sketches estimates the
inner product of their vectors. The error has mean zero, and is about 1 / sqrt(width) times the product of the
vectors' lengths. The width is the number of buckets.

There are two ways to draw signs and buckets. `CountSketch` draws all of them at once, and stores them.
`StreamedSketch` draws them from a secret seed each time that a piece of a model arrives, and does not store them.

References
----------
Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, FloatVector, is_on_host, like, on_host, to_numpy
from flanders.linalg.blocks import column_blocks

STREAMED = 2**20
"""How many parameters a `StreamedSketch` adds at a time. Their buckets and signs take 12 MiB."""


def add_to_buckets(
    total: FloatVector, numbers: NDArray[np.floating], buckets: NDArray[np.integer], signs: NDArray[np.number]
) -> None:
    """Add each number, with its sign, to its bucket of `total`.

    Examples
    --------
    >>> total = np.zeros(3)
    >>> add_to_buckets(total, np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([1, -1, 1]))
    >>> total
    array([-2.,  0.,  5.])
    """
    total += np.bincount(buckets, weights=numbers * signs, minlength=total.size)


@dataclass(frozen=True, eq=False)
class CountSketch:
    """The signs and buckets of all d parameters, to sketch whole matrices."""

    width: int
    """The number of buckets."""
    buckets: NDArray[np.integer]
    """`(d,)`: the bucket of each parameter."""
    signs: NDArray[np.integer]
    """`(d,)`: 1 or -1 for each parameter."""

    @classmethod
    def draw(cls, d: int, width: int, rng: np.random.Generator) -> CountSketch:
        """Return random signs and buckets for `d` parameters and `width` buckets."""
        buckets = rng.integers(0, width, size=d, dtype=np.int32)
        signs = (2 * rng.integers(0, 2, size=d, dtype=np.int8) - 1).astype(np.int8)
        return cls(width, buckets, signs)

    def of(self, matrix: Array, center: Array) -> Array:
        """Return the sketch of each row of `matrix - center`, `(m, width)`.

        If the matrix is in main memory, the sketches are a float64 NumPy array.
        """
        source, center = on_host(matrix), on_host(center)
        total = np.zeros((source.shape[0], self.width))
        for columns in column_blocks(source):
            block = to_numpy(source[:, columns] - center[None, columns])
            for row, numbers in zip(total, block, strict=True):
                add_to_buckets(row, numbers, self.buckets[columns], self.signs[columns])
        return total if is_on_host(matrix) else like(total, matrix)


@dataclass(frozen=True)
class StreamedSketch:
    """Sketches models that arrive in pieces.

    Signs and buckets follow from the secret and from the position of a piece in the model. So they are the same in
    every round, if every round cuts the models into the same pieces.
    """

    width: int
    """The number of buckets."""
    secret: int
    """The seed of the random signs and buckets."""

    def add(self, total: FloatVector, numbers: NDArray[np.floating], start: int) -> None:
        """Add a piece of a model to the buckets of `total`. The piece begins with parameter number `start`."""
        flat = numbers.ravel()
        rng = np.random.default_rng([self.secret, start])
        for first in range(0, flat.size, STREAMED):
            block = flat[first : first + STREAMED].astype(np.float64)
            drawn = rng.integers(0, 2 * self.width, size=block.size, dtype=np.uint32)
            add_to_buckets(total, block, drawn >> 1, 1.0 - 2.0 * (drawn & 1))

    def draw(self, start: int, size: int) -> tuple[NDArray[np.integer], NDArray[np.floating]]:
        """Return the buckets and the signs of a piece with `size` parameters that begins with parameter `start`.

        Use it to add a piece of at most `STREAMED` parameters to several sketches.
        """
        drawn = np.random.default_rng([self.secret, start]).integers(0, 2 * self.width, size=size, dtype=np.uint32)
        return drawn >> 1, 1.0 - 2.0 * (drawn & 1)
