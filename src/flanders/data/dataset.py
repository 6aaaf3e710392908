"""The class `Dataset`, the base class `Loader`, and functions that make a dataset from your own arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flanders.arrays import IntVector
from flanders.checks import InputError, check_number

Images = NDArray[np.float32]
"""An array of examples of any kind, for example images or rows of a table."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and their classes. Clients train on the training examples. The server tests on the test examples.

    Parameters
    ----------
    name
        The name of the dataset in reports.
    x_train, x_test
        The n examples, float32 of shape `(n, *input_shape)`. The shape of images is `(n, channels, height, width)`.
    y_train, y_test
        The class of each example, int64 of shape `(n,)`. Classes are numbers from 0 to `num_classes - 1`.
    num_classes
        The number of classes. Some of them may have no examples.
    owners
        The client that each training example belongs to, int64 of shape `(n,)`. Clients are numbers from 0. If
        `owners` is None, a `Partition` divides the examples among the clients.
    """

    name: str
    x_train: Images
    y_train: IntVector
    x_test: Images
    y_test: IntVector
    num_classes: int
    owners: IntVector | None = None

    def __post_init__(self) -> None:
        if self.owners is not None:
            check_owners(self.owners, len(self.y_train))
        check_number("Dataset", "num_classes", self.num_classes, 2, whole=True)
        for part, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            if x.dtype != np.float32 or y.dtype != np.int64:
                raise InputError(
                    f"Dataset needs float32 x_{part} and int64 y_{part}, got {x.dtype} and {y.dtype}. "
                    "`from_arrays` converts arrays to these types."
                )
            if x.ndim < 2 or y.shape != x.shape[:1] or x.size == 0:
                raise InputError(
                    f"Dataset needs x_{part} of shape (n, ...) and y_{part} of shape (n,) with n > 0, "
                    f"got {x.shape} and {y.shape}."
                )
            if y.min() < 0 or y.max() >= self.num_classes:
                raise InputError(
                    f"y_{part} must hold classes from 0 to {self.num_classes - 1}, got {y.min()} to {y.max()}. "
                    "Number the classes with numpy.unique(y, return_inverse=True), or raise `num_classes`."
                )
            if not (np.isfinite(x.min()) and np.isfinite(x.max())):
                raise InputError(f"x_{part} holds NaN or infinite values. Drop or fill those examples.")
        if self.x_test.shape[1:] != self.x_train.shape[1:]:
            raise InputError(
                f"Training and test examples must have the same shape, got {self.x_train.shape[1:]} "
                f"and {self.x_test.shape[1:]}."
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.x_train.shape[1:]


class Loader(ABC):
    """The base class of all loaders, e.g. `Mnist`. A loader finds the data and returns them as a `Dataset`.

    To add a dataset, write a loader: a frozen dataclass that derives from `Loader` and has the method `load`. Then
    add one line to `DATASETS`.

    Every loader has the parameter `normalise_test`. It says whether the test examples are normalised like the
    training examples. With `False`, the pixels of test images stay from 0 to 1. The code published with the
    FLANDERS paper tests on such images.
    """

    normalise_test: bool

    @abstractmethod
    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Return the dataset, read from the directory `data_dir`.

        By default the directory is the value of the environment variable `FLANDERS_DATA`.
        """


def from_arrays(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    test_fraction: float = 0.2,
    num_classes: int | None = None,
    owners: ArrayLike | None = None,
    name: str = "arrays",
    seed: int = 0,
) -> Dataset:
    """Return a dataset made of your own arrays.

    The values are cast to float32, but not normalised. Normalise them before the call. For a convolutional model,
    put the channels before height and width.

    Parameters
    ----------
    x, y
        The examples, `(n, ...)`, and their classes, `(n,)`. Classes are whole numbers from 0.
    x_test, y_test
        The test examples and their classes. Without them, some examples of `x` become the test examples.
    test_fraction
        The share of every class that becomes test examples, if `x_test` is not given.
    num_classes
        The number of classes. By default, it is the largest number in `y` and `y_test` plus one, but at least 2.
    owners
        The client of each example of `x`, e.g. a column with the names of hospitals. Clients are numbered in the
        order of their names. By default, a `Partition` divides the examples among the clients.
    name
        The name of the dataset in reports.
    seed
        The seed of the random generator that draws the test examples.

    Examples
    --------
    >>> data = from_arrays(np.arange(20.).reshape(10, 2), [0, 1] * 5)
    >>> data.x_train.shape, data.x_test.shape, data.num_classes
    ((8, 2), (2, 2), 2)
    """
    examples, labels = as_examples(x, y, "from_arrays(x, y)")
    clients = None if owners is None else numbered_owners(owners, len(labels))
    if (x_test is None) != (y_test is None):
        raise InputError("from_arrays needs both `x_test` and `y_test`, or neither of them. Got one.")
    if x_test is None or y_test is None:
        train, test = stratified_split(labels, test_fraction, np.random.default_rng(seed))
        test_examples, test_labels = examples[test], labels[test]
        examples, labels, clients = examples[train], labels[train], None if clients is None else clients[train]
    else:
        test_examples, test_labels = as_examples(x_test, y_test, "from_arrays(x_test, y_test)")
    classes = max(2, int(max(labels.max(), test_labels.max())) + 1) if num_classes is None else num_classes
    return Dataset(name, examples, labels, test_examples, test_labels, classes, clients)


def from_clients(
    clients: Sequence[tuple[ArrayLike, ArrayLike]],
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    test_fraction: float = 0.2,
    num_classes: int | None = None,
    name: str = "clients",
    seed: int = 0,
) -> Dataset:
    """Return a dataset made of a list of clients. Each client is a pair of arrays: its examples and their classes.

    The other parameters are those of `from_arrays`. If `x_test` is not given, some of the clients' examples become
    the test examples.

    Examples
    --------
    >>> data = from_clients([(np.zeros((4, 2)), [0, 1, 0, 1]), (np.ones((6, 2)), [0, 1, 0, 1, 0, 1])])
    >>> data.x_train.shape, data.owners.max()
    ((8, 2), np.int64(1))
    """
    if not clients or any(not isinstance(pair, Sequence) or len(pair) != 2 for pair in clients):
        raise InputError("from_clients needs a list with a pair (examples, classes) for each client.")
    pairs = [as_examples(x, y, f"from_clients, for client {number},") for number, (x, y) in enumerate(clients)]
    shapes = {examples.shape[1:] for examples, _ in pairs}
    if len(shapes) > 1:
        raise InputError(f"from_clients needs examples of one shape for all clients. Got {sorted(shapes)}.")
    return from_arrays(
        np.concatenate([examples for examples, _ in pairs]),
        np.concatenate([labels for _, labels in pairs]),
        x_test,
        y_test,
        test_fraction=test_fraction,
        num_classes=num_classes,
        owners=np.repeat(np.arange(len(pairs)), [len(labels) for _, labels in pairs]),
        name=name,
        seed=seed,
    )


def numbered_owners(owners: ArrayLike, count: int) -> IntVector:
    """Return the clients of the examples as numbers from 0. Clients are numbered in the order of their names."""
    column = np.asarray(owners)
    if column.shape != (count,):
        raise InputError(
            f"`owners` must name the client of each of the {count} examples. Got shape {column.shape}."
        )
    return np.unique(column, return_inverse=True)[1].astype(np.int64)


def check_owners(owners: IntVector, count: int) -> None:
    """Raise an error if an example has no client, or if a client has no example."""
    if owners.shape != (count,) or owners.dtype != np.int64 or owners.min() < 0:
        raise InputError(
            f"Dataset needs `owners` with an int64 number for each of its {count} training examples, 0 or more."
        )
    missing = np.setdiff1d(np.arange(owners.max() + 1), owners)
    if missing.size:
        raise InputError(
            f"Every client needs a training example, but {missing.size} have none, e.g. client {missing[0]}. If "
            "you passed no test examples, all examples of these clients were drawn for the test. Then pass test "
            "examples, or leave these clients out. Otherwise, number the owners from 0 without gaps."
        )


def as_examples(x: ArrayLike, y: ArrayLike, caller: str) -> tuple[Images, IntVector]:
    """Return the examples as float32 and the classes as int64. If that fails, the error begins with `caller`."""
    try:
        values = np.ascontiguousarray(x, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{caller} needs an array of numbers in which all examples have the same shape."
        ) from error
    labels = np.asarray(y)
    if values.ndim < 2 or labels.shape != values.shape[:1] or values.size == 0:
        raise InputError(
            f"{caller} needs examples (n, ...) and classes (n,), got {values.shape} and {labels.shape}."
        )
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"{caller} needs whole numbers as classes, got {labels.dtype}. "
            "Number them with numpy.unique(y, return_inverse=True)[1]."
        )
    return values, labels.astype(np.int64)


def stratified_split(y: IntVector, test_fraction: float, rng: np.random.Generator) -> tuple[IntVector, IntVector]:
    """Return the row numbers of the training examples and of the test examples, both in rising order.

    The share `test_fraction` of each class becomes test examples, rounded to a whole number. If `test_fraction` is
    between 0 and 1, each class with at least two examples has at least one training and one test example.
    """
    check_number("stratified_split", "test_fraction", test_fraction, 0, 1)
    chosen = []
    for rows in rows_by_class(y):
        count = round(test_fraction * rows.size)
        if rows.size > 1 and 0 < test_fraction < 1:
            count = min(max(count, 1), rows.size - 1)
        chosen.append(rng.permutation(rows)[:count])
    in_test = np.zeros(y.size, dtype=bool)
    in_test[np.concatenate(chosen)] = True
    if in_test.all() or not in_test.any():
        raise InputError(
            f"A test_fraction of {test_fraction} of {y.size} examples leaves nothing to train or to test on. "
            "Choose another fraction between 0 and 1, or pass the test examples themselves."
        )
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)


def rows_by_class(y: IntVector) -> list[IntVector]:
    """Return the row numbers of each class that occurs, from the lowest class to the highest."""
    by_class = np.argsort(y, kind="stable")
    return np.split(by_class, np.unique(y[by_class], return_index=True)[1][1:])


def as_images(pieces: Sequence[NDArray[np.uint8]]) -> Images:
    """Return several arrays of byte images as one float32 array with values from 0 to 1.

    The new array is filled piece by piece, so no second array of its size is made.
    """
    images = np.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=np.float32)
    start = 0
    for piece in pieces:
        np.divide(piece, np.float32(255), out=images[start : start + len(piece)])
        start += len(piece)
    return images


def normalise(images: Images, mean: Sequence[float], std: Sequence[float]) -> None:
    """Subtract the mean of each channel and divide by its standard deviation, in place."""
    images -= np.array(mean, dtype=np.float32).reshape(-1, 1, 1)
    images /= np.array(std, dtype=np.float32).reshape(-1, 1, 1)
