"""The class `StreamedDefense`: a `Defense` for models that are too large for memory.

The filter does not see the models, but a sketch of each model. A sketch is a short vector from which the length of
a model and the angles between models can be estimated. The models themselves are read and aggregated in pieces.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from flanders.aggregators import Aggregator, FedAvg, MeanAroundMedian, Median, TrimmedMean
from flanders.arrays import FloatMatrix, FloatVector, IntVector
from flanders.checks import InputError, check_number
from flanders.client_ids import ClientId
from flanders.defense import Defense
from flanders.defense_state import DefenseState
from flanders.filters import Filter
from flanders.linalg.sketch import STREAMED, StreamedSketch, add_to_buckets
from flanders.outcome import Outcome
from flanders.round import Round
from flanders.state import load_state, save_state, saveable

BY_COLUMN = (FedAvg, Median, TrimmedMean, MeanAroundMedian)
"""The aggregators that can work on pieces of models: they compute each parameter of the new model only from the
same parameter of the clients' models."""
PIECE = 2**24
"""The most numbers that are aggregated at a time. All models together have at most this many in memory, which takes
64 MiB in float32."""

Piece = NDArray[np.floating]
"""Consecutive parameters of a flat model."""


class ModelPieces(Protocol):
    """A flat model that is read and written in pieces, such as a NumPy array, a memmap or a `ModelFile`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """`(d,)`, where d is the number of parameters."""

    def __getitem__(self, columns: slice, /) -> Piece: ...

    def __setitem__(self, columns: slice, numbers: Piece, /) -> None: ...


class ModelFile:
    """A flat model in a file of raw numbers. Only the pieces that are asked for are in memory.

    Parameters
    ----------
    path
        The file. If it is missing, it is made and filled with zeros.
    size
        The number of parameters.
    dtype
        The type of the numbers.

    Examples
    --------
    >>> import tempfile
    >>> model = ModelFile(tempfile.mkdtemp() + "/model.bin", 5)
    >>> model[1:3] = np.array([7, 8])
    >>> model[:4]
    array([0., 7., 8., 0.], dtype=float32)
    """

    def __init__(self, path: str | os.PathLike[str], size: int, dtype: DTypeLike = np.float32) -> None:
        self.path, self.shape, self.dtype = Path(path), (size,), np.dtype(dtype)
        check_number("ModelFile", "size", size, 1, whole=True)
        expected = size * self.dtype.itemsize
        if not self.path.exists():
            with open(self.path, "wb") as file:
                file.truncate(expected)
        if self.path.stat().st_size != expected:
            raise InputError(
                f"{path} has {self.path.stat().st_size:,} bytes, but {size:,} numbers of type {self.dtype} take "
                f"{expected:,}. Name another file, or give the size with which it was written."
            )

    def __getitem__(self, columns: slice) -> Piece:
        first, last, _ = columns.indices(self.shape[0])
        with open(self.path, "rb") as file:
            file.seek(first * self.dtype.itemsize)
            return np.fromfile(file, dtype=self.dtype, count=max(0, last - first))

    def __setitem__(self, columns: slice, numbers: Piece) -> None:
        first, _, _ = columns.indices(self.shape[0])
        with open(self.path, "r+b") as file:
            file.seek(first * self.dtype.itemsize)
            np.asarray(numbers, dtype=self.dtype).tofile(file)


@saveable
@dataclass(frozen=True, eq=False)
class StreamedState:
    """Everything that a `StreamedDefense` remembers."""

    defense: DefenseState
    width: int
    """The length of a sketch."""
    secret: int
    """The seed of the random numbers with which sketches are computed."""


class StreamedDefense:
    """A `Defense` for models that are too large for memory.

    The filter sees a sketch of each model: a vector of `width` sums. For each parameter, the server draws a random
    sign and one of the sums. It adds the parameter, with this sign, to this sum. The draws are secret. From the
    sketches, the filter can estimate the lengths of models and the angles between them. Each model is read in
    pieces: once for its sketch, and once more if it is aggregated. So the memory that is needed does not grow with
    the size of the model.

    Parameters
    ----------
    filter
        Decides which clients to keep. Default: `Guard()`.
    aggregator
        Turns the kept models into one model: `FedAvg()`, `Median()`, `TrimmedMean(...)` or `MeanAroundMedian(...)`.
        Other aggregators cannot work on pieces of models. Default: `FedAvg()`.
    width
        The number of sums in a sketch. The error of an estimated angle is about 1 / sqrt(width), in radians. With
        the default, it is about one degree.
    seed
        Makes the sketch and the randomness of the filter repeatable. Leave it out in production, since an attacker
        who can predict the randomness can evade the filter.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> models = rng.normal(size=10_000) + 0.5 * rng.normal(size=(20, 10_000))
    >>> models[:4] *= -1
    >>> new = np.empty(10_000)
    >>> StreamedDefense(seed=0)(list(models), new, global_model=np.zeros(10_000)).dropped
    (0, 1, 2, 3)
    >>> bool(np.allclose(new, models[4:].mean(axis=0)))
    True
    """

    def __init__(
        self,
        filter: Filter[Any] | None = None,
        aggregator: Aggregator | None = None,
        *,
        width: int = 4096,
        seed: int | None = None,
    ) -> None:
        check_number("StreamedDefense", "width", width, 2, whole=True)
        self.defense = Defense(filter, aggregator, seed=seed)
        if not isinstance(self.defense.aggregator, BY_COLUMN):
            known = ", ".join(kind.__name__ for kind in BY_COLUMN)
            raise InputError(
                f"The `aggregator` parameter of StreamedDefense must be one of {known}, since models are "
                f"aggregated in pieces. Got {self.defense.aggregator!r} instead."
            )
        secret = secrets.randbits(63) if seed is None else int(np.random.default_rng([seed, 1]).integers(2**63))
        self.sketch = StreamedSketch(width, secret)

    def __call__(
        self,
        updates: Sequence[ModelPieces],
        out: ModelPieces,
        clients: Iterable[ClientId] | None = None,
        weights: Iterable[float] | None = None,
        *,
        global_model: ModelPieces,
    ) -> Outcome:
        """Let the filter drop suspicious clients, and write the aggregate of the other models to `out`.

        `updates` are the models of the clients. A client is left out if its model has another size, cannot be
        read, or holds something else than finite numbers. `Round` explains `clients` and `weights`. The `model`
        of the outcome is only the sketch of the new global model. `out` may be `global_model` itself. But then
        the old model is lost if the process is killed while it writes the new one.
        """
        size = global_model.shape[0]
        if tuple(out.shape) != (size,):
            raise InputError(f"`out` has shape {tuple(out.shape)}, but the global model has ({size},).")
        rows, before = self._sketches(updates, global_model)
        names = () if clients is None else tuple(clients)
        round_ = Round(rows, names, weights, before)

        def aggregate(kept: IntVector) -> FloatVector:
            models = [updates[row] for row in kept]
            return before + self._aggregate(models, round_.weights[kept], global_model, out)

        outcome = self.defense.step(round_, aggregate)
        if not outcome.kept.size and out is not global_model:
            for columns in pieces_of(size, PIECE):
                out[columns] = global_model[columns]
        return replace(outcome, state=None)

    def _sketches(
        self, updates: Sequence[ModelPieces], global_model: ModelPieces
    ) -> tuple[FloatMatrix, FloatVector]:
        """Return the sketches of the updates and of the global model. The sketch of an unusable update is NaN."""
        rows, before = np.zeros((len(updates), self.sketch.width)), np.zeros(self.sketch.width)
        rows[[tuple(getattr(update, "shape", ())) != tuple(global_model.shape) for update in updates]] = np.nan
        for columns in pieces_of(global_model.shape[0], STREAMED):
            model = np.asarray(global_model[columns])
            start = model.astype(np.float64)
            buckets, signs = self.sketch.draw(columns.start, start.size)
            add_to_buckets(before, start, buckets, signs)
            for row, update in zip(rows, updates, strict=True):
                if np.isnan(row[0]):
                    continue
                numbers = read_piece(update, columns, model.dtype)
                if numbers is None or numbers.shape != start.shape:
                    row[:] = np.nan
                else:
                    add_to_buckets(row, numbers - start, buckets, signs)
        return rows + before, before

    def _aggregate(
        self, kept: Sequence[ModelPieces], weights: FloatVector, global_model: ModelPieces, out: ModelPieces
    ) -> FloatVector:
        """Write the aggregate of the kept models to `out`. Return the sketch of the global model's change."""
        change = np.zeros(self.sketch.width)
        # The signs of the sketch depend on where a piece starts, so pieces always start at multiples of STREAMED.
        for piece in pieces_of(global_model.shape[0], STREAMED):
            start = np.array(global_model[piece])  # a copy, since `out` may be the same model
            new = np.empty(start.size, dtype=np.float64)
            for part in pieces_of(start.size, max(1, PIECE // len(kept))):
                columns = slice(piece.start + part.start, piece.start + part.stop)
                block = np.stack([read_again(model, columns, start[part]) for model in kept])
                new[part] = self.defense.aggregator(block, weights, global_model=start[part])
            out[piece] = new.astype(start.dtype, copy=False)
            add_to_buckets(change, new - start, *self.sketch.draw(piece.start, start.size))
        return change

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that this object remembers to a file."""
        save_state(path, StreamedState(self.defense.memory, self.sketch.width, self.sketch.secret))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from the memory in a file that `save` wrote."""
        saved = load_state(path)
        if not isinstance(saved, StreamedState) or saved.width != self.sketch.width:
            raise InputError(
                f"{path} does not hold the memory of a StreamedDefense(width={self.sketch.width}). Load a file "
                "that `StreamedDefense.save` wrote, with the same width."
            )
        try:
            sketch = StreamedSketch(saved.width, saved.secret)
            sketch.draw(0, 1)  # an invalid seed in the file fails here, not in the next round
            self.defense.memory = saved.defense
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        self.sketch = sketch


def read_piece(model: ModelPieces, columns: slice, dtype: np.dtype[Any]) -> FloatVector | None:
    """Return a piece of a client's model, rounded to `dtype`, the dtype of the global model.

    Return None if the piece cannot be read, or if it holds something else than finite numbers.
    """
    try:
        piece = np.asarray(model[columns])
        if piece.dtype.kind not in "biuf":
            return None
        with np.errstate(over="ignore", invalid="ignore"):  # too large numbers become infinite
            numbers = piece.astype(dtype, copy=False).astype(np.float64)
    except (OSError, ValueError, TypeError):  # e.g. a file that was truncated or removed
        return None
    return numbers if np.isfinite(numbers).all() else None


def read_again(model: ModelPieces, columns: slice, start: Piece) -> Piece:
    """Return a piece of a client's model in the type of `start`, the same piece of the global model.

    Return `start` if the piece cannot be used, since its file was changed after the sketch was computed.
    """
    numbers = read_piece(model, columns, start.dtype)
    return start if numbers is None or numbers.shape != start.shape else numbers.astype(start.dtype, copy=False)


def pieces_of(size: int, most: int) -> Iterator[slice]:
    """Yield slices of at most `most` numbers each, which together cover `size` numbers.

    Examples
    --------
    >>> list(pieces_of(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for first in range(0, size, most):
        yield slice(first, min(size, first + most))
