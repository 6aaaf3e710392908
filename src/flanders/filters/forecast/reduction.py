"""Looking at fewer numbers than there are parameters: samples and secret sketches."""

from __future__ import annotations

from collections.abc import Sequence

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, index_like, is_on_host, like, on_host, to_numpy
from flanders.checks import InputError
from flanders.filters.forecast.history import Layout, Snapshot
from flanders.linalg.blocks import column_blocks
from flanders.round import Round


def sample_columns(d: int, count: int, rng: np.random.Generator, *, replace: bool = False) -> IntVector:
    """Draw `count` of `d` parameters (all of them if there are no more), in rising order."""
    if not replace and count >= d:
        return np.arange(d)
    return np.sort(rng.choice(d, size=count, replace=replace)).astype(np.int64)


def sample_of_layers(
    d: int, count: int, layers: Sequence[int], rng: np.random.Generator, *, last_only: bool
) -> IntVector:
    """Draw `count` parameters from the last layer alone, or an equal share from each layer, in rising order.

    `layers` are the layers' numbers of parameters, in the order in which they lie in the flat model. A layer with
    fewer than its share gives all it has, and the others make up for it.

    Examples
    --------
    >>> sample_of_layers(10, 4, (7, 1, 2), np.random.default_rng(0), last_only=False)
    array([3, 6, 7, 9])
    >>> sample_of_layers(10, 4, (7, 1, 2), np.random.default_rng(0), last_only=True)
    array([8, 9])
    """
    if sum(layers) != d:
        raise InputError(
            f"The `layers` {tuple(layers)} have {sum(layers)} parameters in all, but the models have {d}. "
            "Give the number of parameters of each layer."
        )
    ends = np.cumsum(layers)
    if last_only:
        return np.asarray(ends[-1] - layers[-1] + sample_columns(layers[-1], count, rng))
    drawn: list[IntVector] = []
    left = min(count, d)
    for position, layer in enumerate(np.argsort(layers, kind="stable")):
        share = min(layers[layer], left // (len(layers) - position))
        drawn.append(ends[layer] - layers[layer] + sample_columns(layers[layer], share, rng))
        left -= share
    return np.sort(np.concatenate(drawn))


def most_varied_columns(matrix: Array, count: int) -> IntVector:
    """Return the `count` parameters in which the rows differ most, by their variance, in rising order."""
    xp = array_api_compat.array_namespace(matrix)
    variance = to_numpy(xp.var(matrix - matrix[:1, :], axis=0))
    return np.sort(np.argsort(-variance, kind="stable")[:count]).astype(np.int64)


def take_columns(matrix: Array, columns: IntVector) -> Array:
    """Return some columns of a matrix."""
    xp = array_api_compat.array_namespace(matrix)
    return xp.take(matrix, index_like(columns, matrix), axis=1)


def take_of_round(round_: Round, columns: IntVector) -> Round:
    """Return the round as seen through some of the parameters."""
    g = take_columns(round_.global_model[None, :], columns)[0, :]
    return Round(take_columns(round_.updates, columns), round_.clients, round_.weights, g)


def take_of_layout(layout: Layout, columns: IntVector) -> Layout:
    """Return a layout as seen through some of the parameters."""
    snapshots = tuple(
        Snapshot(s.clients, take_columns(s.rows, columns), take_columns(s.global_model[None, :], columns)[0, :])
        for s in layout.snapshots
    )
    return Layout(snapshots, take_of_round(layout.round_, columns))


def sketch_of_layout(layout: Layout, width: int, rng: np.random.Generator) -> Layout:
    """Return a layout as seen through one fresh CountSketch of `width` buckets.

    Everything is sketched relative to the current global model, so that rounding takes
    nothing from small displacements; the sketched global model is zero, and the origin is where its negative goes.
    """
    center = layout.round_.global_model
    d = center.shape[0]
    buckets = rng.integers(0, width, size=d, dtype=np.int32)
    signs = (2 * rng.integers(0, 2, size=d, dtype=np.int8) - 1).astype(np.int8)

    def sketched(matrix: Array) -> Array:
        return count_sketch(matrix, center, buckets, signs, width)

    snapshots = tuple(
        Snapshot(s.clients, sketched(s.rows), sketched(s.global_model[None, :])[0, :]) for s in layout.snapshots
    )
    round_ = Round(sketched(layout.round_.updates), layout.round_.clients, layout.round_.weights)
    return Layout(snapshots, round_, sketched(0 * center[None, :])[0, :])


def count_sketch(matrix: Array, center: Array, buckets: IntVector, signs: IntVector, width: int) -> Array:
    """Return `(m, width)`: every parameter, with its sign, added to its bucket; in float64 on the host.

    Inner products of sketched rows are those of the rows themselves, plus zero-mean noise of
    relative size about 1 / sqrt(width).

    References
    ----------
    Charikar, Chen and Farach-Colton, "Finding frequent items in data streams", ICALP 2002.
    """
    source, center = on_host(matrix), on_host(center)
    m = source.shape[0]
    total = np.zeros((m, width))
    for columns in column_blocks(source):
        block = to_numpy(source[:, columns] - center[None, columns]) * signs[None, columns]
        for row in range(m):
            total[row] += np.bincount(buckets[columns], weights=block[row], minlength=width)
    return total if is_on_host(matrix) else like(total, matrix)
