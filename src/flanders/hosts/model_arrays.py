"""The arrays of the global model: their names, shapes and types, and where their numbers are in a flat vector.

A filter sees a model as one flat vector. The vector consists of the *scored* arrays, one after the other. Integers
and buffers are not scored: they are aggregated, but the filter does not look at them. Buffers are arrays that a
model stores but does not train. This module knows only the buffers of batch normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flanders.arrays import Array
from flanders.checks import InputError
from flanders.layers import tensors_of
from flanders.plain_text import first_few

VARIANCE = "running_var"
"""In PyTorch, the name of a buffer that holds variances ends with this word."""
BUFFERS = ("running_mean", VARIANCE, "num_batches_tracked")
"""In PyTorch, the names of the buffers of batch normalisation end with one of these words."""
WIDEST = 8
"""The most bytes that a number in a reply may have. Wider floats exist only on some machines."""
FLOAT32 = np.dtype(np.float32)
"""A filter gets all scored numbers in this type, or in float64 if one of the scored arrays is float64. Even in an
array of float64, a scored number must be within the range of float32."""
KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b"}
"""For each kind of numbers in the model, the kinds that a reply may have in their place. The letters are those of
NumPy: floats (f), signed and unsigned integers (i, u), booleans (b)."""
MOST_NAMED, LONGEST_NAME = 3, 60
"""A message names at most this many arrays, and shows at most this many characters of a name. Clients choose the
names in their replies."""

Numbers = NDArray[np.generic]
"""The numbers of one array, of any real type."""
Vector = NDArray[np.floating]
"""The scored arrays of a model as one flat vector."""


class BadReply(Exception):
    """A reply that cannot be used. The message says why, in a few words."""


def is_buffer(name: str) -> bool:
    """Whether the array of this name is a buffer of batch normalisation. Buffers are not trained.

    Examples
    --------
    >>> is_buffer("layer1.0.bn1.running_var"), is_buffer("layer1.0.bn1.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in BUFFERS


@dataclass(frozen=True)
class HostArray:
    """The description of one array of the global model."""

    name: str
    shape: tuple[int, ...]
    start: int
    """The position of the array's first number in the flat vector; -1 if the array is not scored."""
    dtype: str = "float32"
    """The type of the array's numbers in the global model from which `HostArrays.of` made this description."""

    @property
    def size(self) -> int:
        """How many numbers the array holds."""
        return math.prod(self.shape)

    @property
    def scored(self) -> bool:
        """Whether the filter looks at the array."""
        return self.start >= 0

    @property
    def columns(self) -> slice:
        """The positions of the array's numbers in the flat vector."""
        return slice(self.start, self.start + self.size)

    def check(self, value: object) -> Numbers:
        """Return the numbers of a client's array in the type `dtype`. Raise `BadReply` if they cannot be used.

        Numbers of another precision are converted, if they fit.
        """
        if not isinstance(value, np.ndarray) or value.shape != self.shape:
            raise BadReply(f"array {self.name!r} has shape {getattr(value, 'shape', None)} instead of {self.shape}")
        wanted = np.dtype(self.dtype)
        if value.dtype.kind not in KINDS.get(wanted.kind, "") or value.dtype.itemsize > WIDEST:
            raise BadReply(f"array {self.name!r} has type {value.dtype} instead of {self.dtype}")
        numbers = convert(value, wanted)
        if numbers is not None and (not self.scored or wanted == FLOAT32 or convert(numbers, FLOAT32) is not None):
            return numbers
        if not np.isfinite(value).all():
            raise BadReply(f"array {self.name!r} is not finite")
        narrow = wanted if numbers is None else FLOAT32
        raise BadReply(f"array {self.name!r} has numbers outside the range of {narrow}")

    def decode(self, array: Array) -> Numbers:
        """Return the numbers of an array of a model in the type `dtype`; see `check`."""
        return self.check(numbers_in(array))

    def check_variance(self, numbers: Numbers, before: Numbers) -> None:
        """Raise `BadReply` if this array holds variances, and a number of a reply is negative.

        `numbers` is the array in the reply, and `before` is the same array in the global model. If a variance in
        `before` is negative, the reply may have this value or a higher one in its place.
        """
        wrong = self.name.rpartition(".")[2] == VARIANCE and bool(np.any(numbers < np.minimum(before, 0)))
        if wrong:
            raise BadReply(f"array {self.name!r} holds a negative variance")


@dataclass(frozen=True)
class HostArrays:
    """The description of all arrays of the global model, in the server's order.

    The methods get a model as `record`: its arrays by name.

    Examples
    --------
    >>> start = {"w": np.ones((2, 2), np.float32), "b": np.zeros(2, np.float32)}
    >>> model = HostArrays.of(start)
    >>> model.flatten(start)
    array([1., 1., 1., 1., 0., 0.], dtype=float32)
    >>> model.cut(np.arange(6, dtype=np.float32), start)["b"]
    array([4., 5.], dtype=float32)
    """

    kind: ClassVar[type[HostArray]] = HostArray  # the class of the `arrays`; a subclass can replace it
    arrays: tuple[HostArray, ...]

    @classmethod
    def of(cls, record: Mapping[str, Array], unscored: Callable[[str], bool] = is_buffer) -> Self:
        """Return the description of a global model. Float arrays are scored, except if `unscored(name)` is true."""
        arrays, size = [], 0
        for name, array in record.items():
            scored = np.dtype(array.dtype).kind == "f" and not unscored(name)
            arrays.append(cls.kind(name, tuple(array.shape), size if scored else -1, str(np.dtype(array.dtype))))
            size += arrays[-1].size if scored else 0
        if size == 0:
            raise InputError(
                f"There is nothing to score in the {len(arrays)} arrays of the global model: a filter looks at "
                "float arrays that are not buffers. Check the initial model, and `unscored` if you pass it."
            )
        return cls(tuple(arrays))

    @property
    def size(self) -> int:
        """The length of the flat vector."""
        return sum(array.size for array in self.arrays if array.scored)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all arrays."""
        return tuple(array.name for array in self.arrays)

    @property
    def layers(self) -> dict[str, int]:
        """How many numbers each scored array holds, by a name that tells its layer; see `tensors_of`."""
        return tensors_of({array.name: array.shape for array in self.arrays if array.scored})

    def scored(self, record: Mapping[str, Array]) -> Iterator[tuple[HostArray, Vector]]:
        """Yield the description and the numbers of each scored array of a model."""
        for array in self.arrays:
            if array.scored:
                yield array, cast("Vector", numbers_in(record[array.name]))

    def flatten(self, record: Mapping[str, Array], dtype: DTypeLike = np.float32) -> Vector:
        """Return the scored arrays of a model as one vector. Numbers too large for `dtype` become infinite."""
        vector: Vector = np.empty(self.size, dtype=dtype)
        with np.errstate(over="ignore"):
            for array, numbers in self.scored(record):
                vector[array.columns] = numbers.ravel()
        return vector

    def cut(self, vector: Vector, record: Mapping[str, Array]) -> dict[str, Numbers]:
        """Cut a flat vector into the scored arrays, and return them by name. Their types are those in `record`."""
        return {
            array.name: vector[array.columns].reshape(array.shape).astype(np.dtype(record[array.name].dtype))
            for array in self.arrays
            if array.scored
        }

    def float_type(self, record: Mapping[str, Array]) -> np.dtype[np.floating]:
        """Return float64 if one of the scored arrays in `record` is float64, else float32."""
        wide = any(np.dtype(record[array.name].dtype) == np.float64 for array in self.arrays if array.scored)
        return np.dtype(np.float64 if wide else np.float32)

    def difference(self, record: Mapping[str, Array]) -> str:
        """Return in words how a model differs from this description in names or shapes; empty if it does not."""
        if names := self.difference_of_names(record):
            return names
        for array in self.arrays:
            if tuple(record[array.name].shape) != array.shape:
                return f"{array.name!r} of shape {tuple(record[array.name].shape)} instead of {array.shape}"
        return ""

    def difference_of_names(self, names: Iterable[str]) -> str:
        """Return in words which names of arrays are missing and which are unknown; empty if all are right."""
        given, expected = set(names), set(self.names)
        parts = (("missing", expected - given), ("unknown", given - expected))

        def named(wrong: Iterable[str]) -> str:
            return first_few(sorted(wrong), MOST_NAMED, lambda name: repr(name[:LONGEST_NAME]))

        return ", ".join(f"{text} {named(wrong)}" for text, wrong in parts if wrong)

    def check_all(self, record: Mapping[str, Array], name: str) -> None:
        """Raise an `InputError` if a model of the server has an array that `HostArray.decode` refuses.

        `name` is the name of the model in the error message.
        """
        for array in self.arrays:
            try:
                array.decode(record[array.name])
            except BadReply as why:
                raise InputError(f"{name} cannot be used: {why}. Start from another model.") from why


def convert(numbers: Numbers, dtype: np.dtype[np.generic]) -> Numbers | None:
    """Return numbers converted to another type, or None if some do not fit. Floats become integers by rounding.

    Examples
    --------
    >>> convert(np.array([2.6, -1.2]), np.dtype(np.int64))
    array([ 3, -1])
    >>> convert(np.array([1e300]), np.dtype(np.float32)), convert(np.array([300]), np.dtype(np.int8))
    (None, None)
    """
    if dtype.kind in "iu":
        whole = np.asarray(np.rint(numbers)) if numbers.dtype.kind == "f" else numbers
        limits = np.iinfo(dtype.name)
        if not np.isfinite(whole).all():
            return None
        if whole.size and (int(whole.min()) < limits.min or int(whole.max()) > limits.max):
            return None
        return whole.astype(dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):  # too large numbers become infinite
        narrow = numbers.astype(dtype, copy=False)
    return narrow if np.isfinite(narrow).all() else None


def numbers_in(array: Array) -> Numbers:
    """Return the numbers of a NumPy array, or of an array that has a method `numpy`, such as Flower's."""
    numbers: Numbers = array if isinstance(array, np.ndarray) else array.numpy()
    return numbers
