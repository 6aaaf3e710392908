"""The arrays of the global model: their names, shapes and types, and their places in one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flanders.arrays import Array
from flanders.checks import InputError

VARIANCE = "running_var"
"""The last part of the name of a buffer that holds variances."""
BUFFERS = ("running_mean", VARIANCE, "num_batches_tracked")
"""The last parts of the names that PyTorch gives to the buffers of batch normalisation."""
WIDEST = 8
"""The most bytes that one number of a reply may take. Wider floats exist on some machines only."""
FLOAT32 = np.dtype(np.float32)
"""The type of the numbers that filters see."""
KINDS = {"f": "f", "i": "iu", "u": "iu", "b": "b"}
"""Which kinds of numbers a reply may hold in place of each kind in the model: floats, integers, truth values."""
LONGEST_NAME = 60
"""The most characters of a name that a message shows. Clients choose the names in their replies."""

Numbers = NDArray[np.generic]
"""The numbers of one array, of any real type."""
Vector = NDArray[np.floating]
"""A flat model."""


class BadReply(Exception):
    """A reply that cannot be used. The message says why, in a few words."""


def is_buffer(name: str) -> bool:
    """Tell by its name whether an array is a buffer of batch normalisation, which is not trained.

    Examples
    --------
    >>> is_buffer("layer1.0.bn1.running_var"), is_buffer("layer1.0.bn1.weight")
    (True, False)
    """
    return name.rpartition(".")[2] in BUFFERS


@dataclass(frozen=True)
class HostArray:
    """One array of the global model."""

    name: str
    shape: tuple[int, ...]
    start: int
    """The place of its first number in the flat vector; -1 if the array is aggregated but not scored."""
    dtype: str = "float32"
    """The type of its numbers. It stays the same from the first round on."""

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def scored(self) -> bool:
        """Whether filters look at it."""
        return self.start >= 0

    @property
    def columns(self) -> slice:
        """The places of its numbers in the flat vector."""
        return slice(self.start, self.start + self.size)

    def check(self, value: object) -> Numbers:
        """Return the numbers of a client's array in the model's type, or raise `BadReply` if they cannot be used.

        Numbers of another width are converted. They have to fit.
        """
        if not isinstance(value, np.ndarray) or value.shape != self.shape:
            raise BadReply(f"array {self.name!r} has shape {getattr(value, 'shape', None)} instead of {self.shape}")
        wanted = np.dtype(self.dtype)
        if value.dtype.kind not in KINDS.get(wanted.kind, "") or value.dtype.itemsize > WIDEST:
            raise BadReply(f"array {self.name!r} has type {value.dtype} instead of {self.dtype}")
        numbers = convert(value, wanted)
        if numbers is None or (self.scored and wanted != np.float32 and convert(numbers, FLOAT32) is None):
            raise BadReply(
                f"array {self.name!r} is not finite" + ("" if value.dtype == wanted else f" in {wanted}")
            )
        return numbers

    def check_variance(self, numbers: Numbers, before: Numbers) -> None:
        """Raise `BadReply` if this array holds variances and a reply makes one of them negative."""
        wrong = self.name.rpartition(".")[2] == VARIANCE and bool(np.any(numbers < np.minimum(before, 0)))
        if wrong:
            raise BadReply(f"array {self.name!r} holds a negative variance")


@dataclass(frozen=True)
class HostArrays:
    """All arrays of the global model, in the server's order.

    The scored arrays, one after the other, make up the flat vector that filters see.

    Examples
    --------
    >>> start = {"w": np.ones((2, 2), np.float32), "b": np.zeros(2, np.float32)}
    >>> model = HostArrays.of(start)
    >>> model.flatten(start)
    array([1., 1., 1., 1., 0., 0.], dtype=float32)
    >>> model.cut(np.arange(6, dtype=np.float32), start)["b"]
    array([4., 5.], dtype=float32)
    """

    kind: ClassVar[type[HostArray]] = HostArray
    arrays: tuple[HostArray, ...]

    @classmethod
    def of(cls, record: Mapping[str, Array], unscored: Callable[[str], bool] = is_buffer) -> Self:
        """Return the arrays of a global model. Float arrays are scored, except those that `unscored` names."""
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
        """The length d of the flat vector."""
        return sum(self.layers.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all arrays."""
        return tuple(array.name for array in self.arrays)

    @property
    def layers(self) -> dict[str, int]:
        """How many numbers each scored array holds, by its name."""
        return {array.name: array.size for array in self.arrays if array.scored}

    def scored(self, record: Mapping[str, Array]) -> Iterator[tuple[HostArray, Vector]]:
        """Yield the scored arrays of a model with their numbers, one at a time."""
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
        """Return the scored arrays that a flat vector holds, in the types of `record`."""
        return {
            array.name: vector[array.columns].reshape(array.shape).astype(np.dtype(record[array.name].dtype))
            for array in self.arrays
            if array.scored
        }

    def float_type(self, record: Mapping[str, Array]) -> np.dtype[np.floating]:
        """Return the float type in which to compute with the scored arrays: float64 if one of them has it."""
        wide = any(np.dtype(record[name].dtype) == np.float64 for name in self.layers)
        return np.dtype(np.float64 if wide else np.float32)

    def difference(self, record: Mapping[str, Array]) -> str:
        """Return in words how the server's own arrays differ from these in name or shape; empty if they do not."""
        if names := self.difference_of_names(record):
            return names
        for array in self.arrays:
            if tuple(record[array.name].shape) != array.shape:
                return f"{array.name!r} of shape {tuple(record[array.name].shape)} instead of {array.shape}"
        return ""

    def difference_of_names(self, names: Iterable[str]) -> str:
        """Return in words which names are missing and which are unknown; empty if all names are right."""
        found, expected = set(names), set(self.names)
        parts = (("missing", expected - found), ("unknown", found - expected))
        return ", ".join(f"{text} {list_names(sorted(some))}" for text, some in parts if some)

    def check_all(self, record: Mapping[str, Array], name: str) -> None:
        """Complain if a model of the server holds numbers that no reply may hold. `name` is what users call it."""
        for array in self.arrays:
            try:
                array.check(numbers_in(record[array.name]))
            except BadReply as why:
                raise InputError(f"{name} cannot be trained from: {why}. Start from another model.") from why


def convert(numbers: Numbers, dtype: np.dtype[np.generic]) -> Numbers | None:
    """Return numbers in another type, floats rounded if it is one of integers; None if not all of them fit.

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
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite
        narrow = numbers.astype(dtype, copy=False)
    return narrow if np.isfinite(narrow).all() else None


def list_names(names: Sequence[str], most: int = 3) -> str:
    """Return a few names, and how many more there are.

    Examples
    --------
    >>> list_names(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    shown = ", ".join(repr(name[:LONGEST_NAME]) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def numbers_in(array: Array) -> Numbers:
    """Return the numbers of an array of NumPy, or of an array of another library that has a method `numpy`."""
    numbers: Numbers = array if isinstance(array, np.ndarray) else array.numpy()
    return numbers
