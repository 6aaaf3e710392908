"""Operations that touch all m x d numbers, on any array library, a block of columns at a time.

Nearly everything else works on m x m matrices of float64 on the host. What reads large data elsewhere (sorted
columns, sketches, distances that are no inner products) cuts it by `column_blocks`, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from flanders.types import Array, FloatVector, IntVector, to_numpy

FloatMatrix = NDArray[np.float64]

HOST_BLOCK = 400_000
"""Numbers in a block on the CPU: a few megabytes, so that a block stays in the cache."""
DEVICE_BLOCK = 2**22, 2**24
"""Least and most numbers in a block on an accelerator, where launches cost more than memory."""

LARGEST_SQUARE = 1e300
"""Rows of a larger squared norm are unusable; float32 cannot hold one."""


def is_on_host(array: Array) -> bool:
    """Tell whether the numbers lie in the computer's own memory, as NumPy can see them."""
    if array_api_compat.is_torch_array(array):
        return bool(array.device.type == "cpu")
    return bool(array_api_compat.is_numpy_array(array))


def on_host(array: Array) -> Array:
    """View a CPU tensor as a NumPy array without copying; anything else is returned as it is.

    NumPy sorts and reduces blocks several times faster than PyTorch does on a CPU.
    """
    if array_api_compat.is_torch_array(array) and array.device.type == "cpu":
        return array.detach().numpy()
    return array


def like(values: Any, array: Array, dtype: Any = None) -> Array:
    """Put host values where `array` is: same library, same device, same dtype unless told."""
    xp = array_api_compat.array_namespace(array)
    return xp.asarray(values, dtype=array.dtype if dtype is None else dtype, device=array_api_compat.device(array))


def copied(array: Array) -> Array:
    """Return a copy that later changes of the array cannot reach."""
    return array_api_compat.array_namespace(array).asarray(array, copy=True)


def normals_like(array: Array, rng: np.random.Generator) -> Array:
    """Draw independent standard normal numbers of the shape, dtype, library and device of `array`.

    On a GPU PyTorch draws them, from a seed of `rng`: other numbers than on a CPU, a hundred times sooner.
    """
    xp = array_api_compat.array_namespace(array)
    if array_api_compat.is_torch_array(array) and not is_on_host(array):
        generator = xp.Generator(device=array.device).manual_seed(int(rng.integers(2**63)))
        return xp.randn(array.shape, generator=generator, dtype=array.dtype, device=array.device)
    single = array.dtype == xp.float32
    return like(rng.standard_normal(array.shape, dtype=np.float32 if single else np.float64), array)


def index_like(index: Any, array: Array) -> Array:
    """Put row or column numbers where `array` is, as the integers its library indexes by."""
    xp = array_api_compat.array_namespace(array)
    return like(index, array, xp.__array_namespace_info__().default_dtypes()["indexing"])


def widest(xp: Any) -> Any:
    """Return float64, or float32 on the libraries that have no float64 (JAX unless x64 is enabled)."""
    real = xp.__array_namespace_info__().dtypes(kind="real floating")
    return real.get("float64", xp.float32)


def rounding_of(array: Array) -> float:
    """Return the rounding error of 1 in the float in which sums over such an array are accumulated."""
    xp = array_api_compat.array_namespace(array)
    return float(xp.finfo(widest(xp)).eps)


def column_blocks(*matrices: Array) -> Iterator[slice]:
    """Cut the columns of matrices of equal width into slices that suit the memory they lie in."""
    m, d = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    numbers = HOST_BLOCK if is_on_host(matrices[0]) else int(np.clip(m * d // 64, *DEVICE_BLOCK))
    width = max(64, numbers // m)
    width += width & (width - 1) == 0  # rows a power of two apart share cache lines
    for start in range(0, d, width):
        yield slice(start, min(start + width, d))


def centred_block(matrix: Array, center: Array | None, columns: slice) -> Array:
    """Return `matrix[:, columns]` less a center, one for all rows or one each, in the widest float."""
    xp = array_api_compat.array_namespace(matrix)
    block = xp.astype(matrix[:, columns], widest(xp), copy=False)
    return block if center is None else block - xp.astype(center[..., columns], widest(xp), copy=False)


def centred_blocks(
    pieces: Sequence[Array], center: Array | None, columns: Sequence[slice] | None = None
) -> Iterator[Array]:
    """Yield blocks of columns of stacked matrices, less a center, in the widest float.

    Where arrays can be written to, every block is written over the last one: use it before asking
    for the next.
    """
    xp = array_api_compat.array_namespace(*pieces)
    columns = list(column_blocks(*pieces)) if columns is None else columns
    if not (array_api_compat.is_numpy_array(pieces[0]) or array_api_compat.is_torch_array(pieces[0])):
        for c in columns:
            yield xp.concat([centred_block(piece, center, c) for piece in pieces])
        return
    m, device = sum(piece.shape[0] for piece in pieces), array_api_compat.device(pieces[0])
    space = xp.empty((m, columns[0].stop), dtype=widest(xp), device=device)
    for c in columns:
        block = space[:, : c.stop - c.start]
        first = 0
        for piece in pieces:
            block[first : first + piece.shape[0], :] = piece[:, c]
            first += piece.shape[0]
        if center is not None:
            block -= center[..., c]
        yield block


def inner_products(pieces: Sequence[Array], center: Array | None = None, *, tail: int = 0) -> FloatMatrix:
    """Return inner products of stacked rows around `center`, accumulated in float64.

    The rows of all `pieces`, (k_i, d) each, are taken as one matrix; the result has a column for
    each of them, and a row for those of `pieces[tail:]`.

    Subtracting a point near the rows first is what keeps small differences between large
    models: the products of the raw float32 rows lose them.
    """
    pieces = [on_host(piece) for piece in pieces]
    skipped = sum(piece.shape[0] for piece in pieces[:tail])
    with_old: Any = 0.0
    with_new: Any = 0.0
    for rows in centred_blocks(pieces, None if center is None else on_host(center)):
        old, new = rows[:skipped, :], rows[skipped:, :]
        with_old = with_old + new @ old.T
        with_new = with_new + new @ new.T  # a matrix by itself: BLAS takes half the time
    return np.hstack([to_numpy(with_old), to_numpy(with_new)]).astype(np.float64, copy=False)


def projections(matrix: Array, directions: Array, center: Array | None = None) -> FloatMatrix:
    """Return `(matrix - center) @ directions.T`, `(m, k)`, accumulated in float64."""
    matrix, directions = on_host(matrix), on_host(directions)
    columns = list(column_blocks(matrix, directions))
    blocks = centred_blocks([matrix], None if center is None else on_host(center), columns)
    total: Any = 0.0
    for rows, others in zip(blocks, centred_blocks([directions], None, columns), strict=True):
        total = total + rows @ others.T
    return np.asarray(to_numpy(total), dtype=np.float64)


def products_with(
    matrix: Array, directions: Sequence[Array], center: Array | None = None, *, skip: int = 0
) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
    """Return inner products in one pass: of the rows around `center`, with directions, and of the directions.

    That is `(m, m)`, `(m, k)` and `(k - skip, k - skip)`: the last are of all but the first `skip` directions. The
    rows of all `directions`, (k_i, d) each, are taken as one matrix, and are not centred.
    """
    matrix, directions = on_host(matrix), [on_host(piece) for piece in directions]
    columns = list(column_blocks(matrix, *directions))
    totals: list[Any] = [0.0, 0.0, 0.0]
    blocks = centred_blocks([matrix], None if center is None else on_host(center), columns)
    for rows, others in zip(blocks, centred_blocks(directions, None, columns), strict=True):
        found = rows @ rows.T, rows @ others.T, others[skip:, :] @ others[skip:, :].T
        totals = [total + part for total, part in zip(totals, found, strict=True)]
    own, across, between = (np.asarray(to_numpy(total), dtype=np.float64) for total in totals)
    return (own + own.T) / 2, across, (between + between.T) / 2


def gram(matrix: Array, center: Array | None = None) -> FloatMatrix:
    """Return the `(m, m)` inner products of the rows around `center`, exactly symmetric."""
    product = inner_products([matrix], center)
    return (product + product.T) / 2


def squared_distances(matrix: Array, center: Array | None = None) -> FloatMatrix:
    """Return the `(m, m)` squared Euclidean distances between rows, in float64.

    `center` should be a point near the rows; by default their first one.
    """
    products = gram(matrix, matrix[0, :] if center is None else center)
    return distances_of_gram(products)


def distances_of_gram(products: FloatMatrix) -> FloatMatrix:
    """Turn inner products into squared distances: |x|^2 + |y|^2 - 2 <x, y>, never negative."""
    norms = np.diagonal(products)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2 * products, 0.0)
    np.fill_diagonal(squared, 0.0)
    return squared


def lengths_of_gram(products: FloatMatrix) -> FloatVector:
    """Return the lengths of vectors, a little above zero at least, from their inner products."""
    return np.sqrt(np.maximum(np.diagonal(products), 1e-200))


def cosines_of_gram(products: FloatMatrix) -> FloatMatrix:
    """Return the cosines between vectors from their inner products."""
    lengths = lengths_of_gram(products)
    return products / np.outer(lengths, lengths)


def squared_norms(matrix: Array, center: Array | None = None) -> FloatVector:
    """Return the `(m,)` squared norms of the rows around `center`, accumulated in float64."""
    matrix = on_host(matrix)
    xp = array_api_compat.array_namespace(matrix)
    total: Any = 0.0
    for block in centred_blocks([matrix], None if center is None else on_host(center)):
        total = total + xp.vecdot(block, block)
    return np.asarray(to_numpy(total), dtype=np.float64)


def usable_rows(matrix: Array) -> NDArray[np.bool_]:
    """Tell of each row whether it is finite, and not so large that squared distances overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return squared_norms(matrix) < LARGEST_SQUARE  # false for NaN


def clip_factors(lengths: FloatVector, radius: float) -> FloatVector:
    """Return the factors from 0 to 1 that bring each length down to at most `radius`."""
    return np.divide(radius, lengths, out=np.ones_like(lengths), where=lengths > radius)


def less_their_mean(
    matrix: Array, rows: IntVector, center: Array, weights: FloatVector, factors: FloatVector, shares: FloatVector
) -> tuple[Array, Array]:
    r"""Return :math:`a_i (x_i - c) - b_i v` for these rows of a matrix, and :math:`v = \sum_i w_i (x_i - c)`."""
    source, at = on_host(matrix), on_host(center)[None, :]
    xp = array_api_compat.array_namespace(source)
    chosen = None if np.array_equal(rows, np.arange(source.shape[0])) else index_like(rows, source)
    w, a, b = (like(x, source) for x in (weights, factors, shares))
    means = []

    def results() -> Iterator[Array]:
        for columns in column_blocks(source):
            block = source[:, columns]
            steps = (block if chosen is None else xp.take(block, chosen, axis=0)) - at[:, columns]
            means.append(w @ steps)
            yield a[:, None] * steps - b[:, None] * means[-1][None, :]

    return like(join_columns(results(), source), matrix), join(means, matrix)


def combine(coefficients: Any, matrix: Array) -> Array:
    """Return `coefficients @ matrix`: weighted sums of the rows, one (d,) or several (k, d)."""
    return like(np.asarray(coefficients), matrix) @ matrix


def mean(matrix: Array, weights: FloatVector | None = None) -> Array:
    """Return the (weighted) average of the rows."""
    w = np.ones(matrix.shape[0]) if weights is None else weights
    return combine(w / w.sum(), matrix)


def move(center: Array, coefficients: FloatVector, matrix: Array) -> Array:
    """Return `center + coefficients @ (matrix - center)`, in float64 as far as there is one.

    Coefficients may be large where displacements are small; taken apart, the two products would
    cancel each other and leave their rounding errors.
    """
    at, rows = on_host(center), on_host(matrix)
    xp = array_api_compat.array_namespace(rows)
    a = like(coefficients, rows, widest(xp))
    blocks = zip(column_blocks(rows), centred_blocks([rows], at), strict=True)
    return join([a @ block + xp.astype(at[c], widest(xp)) for c, block in blocks], matrix)


def sorted_columns(matrix: Array, rows: IntVector | None = None) -> Iterator[Array]:
    """Yield blocks of columns, transposed to `(width, m)`, each column's values in rising order.

    `rows` leaves out all others.
    """
    source = on_host(matrix)
    xp = array_api_compat.array_namespace(source)
    chosen = None if rows is None else index_like(rows, source)
    for columns in column_blocks(source):
        block = source[:, columns]
        block = (block if chosen is None else xp.take(block, chosen, axis=0)).T
        if array_api_compat.is_numpy_array(block):
            block = block.copy(order="C")  # what is sorted lies side by side
            block.sort(axis=1)
            yield block
        else:
            yield xp.sort(block, axis=1, stable=False)


def join_columns(blocks: Iterator[Array], matrix: Array) -> Array:
    """Put `(k, width)` results of the blocks of `matrix` side by side; on NumPy without a second copy of all."""
    if not array_api_compat.is_numpy_array(matrix):
        return array_api_compat.array_namespace(matrix).concat(list(blocks), axis=1)
    out = None
    for columns, block in zip(column_blocks(matrix), blocks, strict=True):
        if out is None:
            out = np.empty((block.shape[0], matrix.shape[1]), dtype=block.dtype)
        out[:, columns] = block
    return out


def join(pieces: Sequence[Array], matrix: Array) -> Array:
    """Concatenate `(width,)` results of the blocks of `matrix` into one `(d,)` of its own kind."""
    xp = array_api_compat.array_namespace(pieces[0])
    joined = pieces[0] if len(pieces) == 1 else xp.concat(list(pieces))
    return like(joined, matrix)
