"""What a dataset is, how one is loaded, and how to bring your own arrays."""

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


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples and their classes: the clients train on one part, and the server tests on the other.

    Parameters
    ----------
    name
        The name of the dataset in reports.
    x_train, x_test
        float32, `(n, *input_shape)`; images are channels-first, `(n, C, H, W)`.
    y_train, y_test
        int64 class numbers from 0 to `num_classes - 1`, `(n,)`.
    num_classes
        The number of classes. Some of them may have no examples.
    """

    name: str
    x_train: Images
    y_train: IntVector
    x_test: Images
    y_test: IntVector
    num_classes: int

    def __post_init__(self) -> None:
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
    """Finds a dataset and turns it into arrays.

    A new dataset is a frozen dataclass with `load`, and one line in `DATASETS`. Every loader has the parameter
    `normalise_test`: whether the test examples are normalised like the training examples. With `False` their pixels
    stay between 0 and 1. The code published with the FLANDERS paper tests on such examples.
    """

    normalise_test: bool

    @abstractmethod
    def load(self, data_dir: Path | str | None = None) -> Dataset:
        """Read the dataset from `data_dir`. Default: the environment variable `FLANDERS_DATA`."""


def from_arrays(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    *,
    test_fraction: float = 0.2,
    num_classes: int | None = None,
    name: str = "arrays",
    seed: int = 0,
) -> Dataset:
    """Make a dataset from your own arrays.

    The values are cast to float32 and otherwise not changed. Normalise them first. For a convolutional model, put
    the channels before height and width.

    Parameters
    ----------
    x, y
        Examples `(n, ...)` and their classes `(n,)`, whole numbers from 0.
    x_test, y_test
        Test examples and their classes. Without them, the share `test_fraction` of every class becomes the test
        set. The examples are drawn at random from `seed`.
    num_classes
        Default: the largest class, plus one.

    Examples
    --------
    >>> data = from_arrays(np.arange(20.).reshape(10, 2), [0, 1] * 5)
    >>> data.x_train.shape, data.x_test.shape, data.num_classes
    ((8, 2), (2, 2), 2)
    """
    examples, labels = as_examples(x, y, "x, y")
    if (x_test is None) != (y_test is None):
        raise InputError("from_arrays needs both `x_test` and `y_test`, or neither of them. Got one.")
    if x_test is None or y_test is None:
        train, test = stratified_split(labels, test_fraction, np.random.default_rng(seed))
        test_examples, test_labels = examples[test], labels[test]
        examples, labels = examples[train], labels[train]
    else:
        test_examples, test_labels = as_examples(x_test, y_test, "x_test, y_test")
    classes = max(2, int(max(labels.max(), test_labels.max())) + 1) if num_classes is None else num_classes
    return Dataset(name, examples, labels, test_examples, test_labels, classes)


def as_examples(x: ArrayLike, y: ArrayLike, names: str) -> tuple[Images, IntVector]:
    """Return float32 examples and int64 classes of the same length, or complain."""
    try:
        values = np.ascontiguousarray(x, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"from_arrays({names}) needs an array of numbers in which all examples have the same shape."
        ) from error
    labels = np.asarray(y)
    if values.ndim < 2 or labels.shape != values.shape[:1] or values.size == 0:
        raise InputError(
            f"from_arrays({names}) needs examples (n, ...) and classes (n,), got {values.shape} and {labels.shape}."
        )
    if labels.dtype.kind not in "iu":
        raise InputError(
            f"from_arrays({names}) needs whole numbers as classes, got {labels.dtype}. "
            "Number them with numpy.unique(y, return_inverse=True)[1]."
        )
    return values, labels.astype(np.int64)


def stratified_split(y: IntVector, test_fraction: float, rng: np.random.Generator) -> tuple[IntVector, IntVector]:
    """Return the rows to train on and the rows to test on, both in rising order.

    The share `test_fraction` of each class goes to the test, rounded to a whole number. A class of at least two
    examples has at least one in each part.
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
            "Choose one between 0 and 1, or pass the test examples themselves."
        )
    return np.flatnonzero(~in_test), np.flatnonzero(in_test)


def rows_by_class(y: IntVector) -> list[IntVector]:
    """Return the rows of each class that occurs, from the lowest class to the highest."""
    by_class = np.argsort(y, kind="stable")
    return np.split(by_class, np.unique(y[by_class], return_index=True)[1][1:])


def as_images(pieces: Sequence[NDArray[np.uint8]]) -> Images:
    """Join byte images into one float32 array with values from 0 to 1, without another copy."""
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
