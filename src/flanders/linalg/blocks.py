"""Cuts matrices into blocks of columns, and joins the results that were computed from the blocks.

The other modules of `flanders.linalg` read large matrices block by block. So they do not copy a matrix as a whole.
In this module, a matrix is `(m, d)`: it has m rows and d columns. The width of a block is its number of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, index_like, is_on_host, like, on_host, widest_float

HOST_BLOCK = 500_000
"""About how many numbers a block on the CPU has. In float64 they take 4 MB, so a block fits in the cache."""

WIDE = 1000
"""The smallest number of columns in a block for matrix products. With fewer columns there are more blocks, and
it takes too long to add up their products."""

DEVICE_BLOCK = 2**24, 2**25
"""The smallest and the largest size of a block on an accelerator, as a count of numbers. Smaller blocks are slow
there. Larger blocks take too much memory: 2**25 numbers take 256 MiB in float64."""


def block_size(*matrices: Array) -> int:
    """Return about how many numbers a block of these matrices has, which suits the CPU or the accelerator."""
    if is_on_host(matrices[0]):
        return HOST_BLOCK
    return int(np.clip(sum(matrix.shape[0] * matrix.shape[1] for matrix in matrices) // 64, *DEVICE_BLOCK))


def column_blocks(*matrices: Array, least: int = 64) -> Iterator[slice]:
    """Yield slices that cut the columns of some matrices into blocks. All matrices have the same number of columns.

    The size of the blocks suits the CPU or the accelerator. All slices except the last have at least `least`
    columns.
    """
    m, d = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
    width = max(least, block_size(*matrices) // m)
    # Avoid a width that is a power of two: the rows of a block would then compete for the same cache lines.
    width += width & (width - 1) == 0
    for start in range(0, d, width):
        yield slice(start, min(start + width, d))


def product_blocks(*matrices: Array) -> list[slice]:
    """Return slices like those of `column_blocks`, but wide enough for products of the rows (see `WIDE`)."""
    return list(column_blocks(*matrices, least=WIDE))


def centred_block(matrix: Array, center: Array | None, columns: slice) -> Array:
    """Return `matrix[:, columns]` minus these columns of `center`, in the widest float type of the array library.

    `center` is one vector, `(d,)`, or one vector for each row, `(m, d)`. If it is None, nothing is subtracted.
    """
    xp = array_api_compat.array_namespace(matrix)
    block = xp.astype(matrix[:, columns], widest_float(xp), copy=False)
    return block if center is None else block - xp.astype(center[..., columns], widest_float(xp), copy=False)


def centred_blocks(
    pieces: Sequence[Array], center: Array | None, columns: Sequence[slice] | None = None, dtype: object = None
) -> Iterator[Array]:
    """Stack the matrices `pieces`, subtract `center` from each row, and yield the result in blocks of columns.

    `dtype` is the type of the blocks, by default the widest one of the array library. `columns` has one slice for
    each block, by default those of `column_blocks`. With NumPy and PyTorch, each block overwrites the block before
    it.
    """
    xp = array_api_compat.array_namespace(*pieces)
    dtype = widest_float(xp) if dtype is None else dtype
    columns = list(column_blocks(*pieces)) if columns is None else columns
    if not (array_api_compat.is_numpy_array(pieces[0]) or array_api_compat.is_torch_array(pieces[0])):
        for c in columns:
            yield xp.astype(xp.concat([centred_block(piece, center, c) for piece in pieces]), dtype, copy=False)
        return
    m, device = sum(piece.shape[0] for piece in pieces), array_api_compat.device(pieces[0])
    space = xp.empty((m, columns[0].stop), dtype=dtype, device=device)
    for c in columns:
        block = space[:, : c.stop - c.start]
        first = 0
        for piece in pieces:
            block[first : first + piece.shape[0], :] = piece[:, c]
            first += piece.shape[0]
        if center is not None:
            block -= xp.astype(center[..., c], dtype, copy=False)  # NumPy is slow if the types differ
        yield block


def sorted_columns(matrix: Array, rows: IntVector | None = None) -> Iterator[Array]:
    """Sort the values of each column of the matrix, and yield the sorted columns in blocks.

    A block is transposed: it is `(width, m)`, with a row for each column of the matrix. If `rows` is given, only
    these rows of the matrix are used.
    """
    source = on_host(matrix)
    xp = array_api_compat.array_namespace(source)
    chosen = None if rows is None else index_like(rows, source)
    for columns in column_blocks(source):
        block = source[:, columns]
        block = (block if chosen is None else xp.take(block, chosen, axis=0)).T
        if array_api_compat.is_numpy_array(block):
            block = block.copy(order="C")  # so that the values of a column lie side by side in memory
            block.sort(axis=1)
            yield block
        else:
            yield xp.sort(block, axis=1, stable=False)


def join_columns(blocks: Iterator[Array], matrix: Array) -> Array:
    """Join the arrays `blocks` side by side to one array with d columns.

    Each array was computed from a block of `matrix`, and has the width of this block. All arrays have the same
    number of rows.
    """
    xp = array_api_compat.array_namespace(matrix)
    if not (array_api_compat.is_numpy_array(matrix) or array_api_compat.is_torch_array(matrix)):
        return xp.concat(list(blocks), axis=1)
    out = None
    for columns, block in zip(column_blocks(matrix), blocks, strict=True):
        if out is None:
            shape, device = (block.shape[0], matrix.shape[1]), array_api_compat.device(matrix)
            out = xp.empty(shape, dtype=block.dtype, device=device)
        out[:, columns] = block
    return out


def join(pieces: Sequence[Array], matrix: Array) -> Array:
    """Join the vectors `pieces` to one vector of length d.

    Each vector was computed from a block of `matrix`, and has a number for each column of this block. The result
    has the library, device and type of `matrix`.
    """
    xp = array_api_compat.array_namespace(pieces[0])
    joined = pieces[0] if len(pieces) == 1 else xp.concat(list(pieces))
    return like(joined, matrix)
