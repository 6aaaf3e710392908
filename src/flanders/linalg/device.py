"""Fast mathematics on `(m, d)` tensors of PyTorch on an NVIDIA GPU, with the kernels of `kernels`.

The other modules of `flanders.linalg` call these functions where `suits` is true. Elsewhere they use the functions
of the array library.

In this module a matrix has m rows and d columns, and a piece is a matrix in a list of them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from types import ModuleType

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, index_like, like, to_numpy
from flanders.linalg.selection import reordered

MEDIAN, TRIMMED_MEAN, MEAN_AROUND_MEDIAN = range(3)
"""The statistics that `column_statistic` computes."""
OLDEST = 8, 0
"""The compute capability of the oldest GPUs that are used: those since 2020 multiply float64 on tensor cores."""
MOST_ROWS = 1024
"""`column_statistic` holds a column in the registers of one program. With more rows they would not fit."""
FEW_ROWS = 8
"""Pieces with fewer rows are copied into one piece. A launch for each of them would take longer than the copy."""
TILES = 16, 64, 128
"""How many rows a block of a product may have. Tensor cores multiply at least 16 rows, and a product of more than
128 x 128 rows in float64 does not fit into the registers. More sizes would mean more kernels to compile."""
MOST_TILES = 8
"""How many programs of a product with small tiles a multiprocessor runs at once, at most."""
SQUARES = 4, 512, 16
"""How many rows and columns `row_squares` reads at a time, and how often a program does this."""
SUMS = 4, 1024
"""How many rows and columns `weighted_sum` reads at a time."""
SORTED = 32
"""How many columns a program of `column_statistic` has: one for each thread of the GPU's smallest group."""
HELD = 128
"""How many values of a column each such group holds at most."""
FEWEST_HELD = 16
"""How many values of a column it holds at least, so that rounds of few clients share one kernel."""

log = logging.getLogger("flanders")


def suits(*matrices: Array, center: Array | None = None) -> bool:
    """Whether the kernels can read these tensors, on a GPU on which they work.

    They subtract one `center` from all rows. They cannot be used if there is a center for each row, or if a tensor
    is empty.
    """
    if center is not None and center.ndim != 1:
        return False
    arrays = matrices if center is None else (*matrices, center)
    if not all(array_api_compat.is_torch_array(array) and array.device.type == "cuda" for array in arrays):
        return False
    xp = array_api_compat.array_namespace(arrays[0])
    readable = (a.dtype in (xp.float32, xp.float64) and a.stride(-1) == 1 and min(a.shape) > 0 for a in arrays)
    return all(readable) and works_on(arrays[0].device, xp)


@functools.cache
def works_on(device: Array, torch: ModuleType) -> bool:
    """Whether the kernels work on a GPU: it is not too old, and Triton can compile for it."""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < OLDEST:
        return False
    try:
        ones = torch.ones((2, 3), device=device)
        return bool((products(ones, None, ones, None) == 3.0).all())
    except Exception as error:  # Triton or a compiler is missing, or they do not fit together
        log.info("the kernels of flanders.linalg cannot be used (%s): PyTorch's own are slower", error)
        return False


@functools.cache
def _kernels() -> ModuleType:
    from flanders.linalg import kernels

    return kernels


@functools.cache
def _multiprocessors(device: Array, torch: ModuleType) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def _blocks(numbers: int, size: int) -> int:
    """Return how many blocks of a size hold these numbers. The last block may be smaller."""
    return -(-numbers // size)


def _tile(rows: int) -> int:
    """Return how many rows a block of a product has: the smallest of `TILES` that holds all rows, or the last."""
    return next((size for size in TILES if rows <= size), TILES[-1])


def products(first: Array, first_center: Array | None, second: Array, second_center: Array | None) -> Array:
    """Return the inner products of the rows of two matrices, `(m, k)` in float64.

    The centers are subtracted from the rows first, unless they are None.
    """
    xp, kernels = array_api_compat.array_namespace(first), _kernels()
    (m, d), k = first.shape, second.shape[0]
    rows, others = _tile(m), _tile(k)
    tiles, depth = (_blocks(m, rows), _blocks(k, others)), int(kernels.DEPTH)
    small = TILES[-1] ** 2 // (rows * others)  # how many times as many programs fit on the GPU as with large tiles
    at_once = _multiprocessors(first.device, xp) * min(small, MOST_TILES)
    steps = _blocks(d, depth * max(1, at_once // (tiles[0] * tiles[1])))
    programs = _blocks(d, depth * steps)
    out = xp.empty((programs, m, k), dtype=xp.float64, device=first.device)
    same = first is second and first_center is second_center and tiles == (1, 1)
    with xp.cuda.device(first.device):
        kernels.product_kernel[(programs, *tiles)](
            first,
            first_center,
            None if same else second,
            None if same else second_center,
            out,
            first.stride(0),
            second.stride(0),
            m,
            k,
            d,
            rows,
            others,
            num_warps=8 if small == 1 else 4,
        )
    return xp.sum(out, axis=0)


def products_of_pieces(
    first: Sequence[Array], first_center: Array | None, second: Sequence[Array], second_center: Array | None
) -> FloatMatrix:
    """Return the inner products of all rows of the pieces `first` with all rows of the pieces `second`.

    The centers are subtracted from the rows first, unless they are None.
    """
    return start_products(first, first_center, second, second_center)()


def start_products(
    first: Sequence[Array], first_center: Array | None, second: Sequence[Array], second_center: Array | None
) -> Callable[[], FloatMatrix]:
    """Start to compute what `products_of_pieces` returns. The result is a function that waits for it.

    With several products, start all of them before you wait: the GPU then computes one while the host starts the
    next.
    """
    xp = array_api_compat.array_namespace(first[0])
    mine, my_order = _gathered(first)
    symmetric = first is second and first_center is second_center
    theirs, their_order = (mine, my_order) if symmetric else _gathered(second)
    blocks: list[list[Array]] = []
    for i, piece in enumerate(mine):
        known = [blocks[j][i].T for j in range(i)] if symmetric else []
        blocks.append(
            known + [products(piece, first_center, other, second_center) for other in theirs[len(known) :]]
        )
    whole = blocks[0][0] if len(mine) == len(theirs) == 1 else xp.concat([xp.concat(row, axis=1) for row in blocks])

    def wait() -> FloatMatrix:
        found = reordered(to_numpy(whole), my_order.argsort(), their_order.argsort())
        return (found + found.T) / 2 if symmetric else found

    return wait


def _gathered(pieces: Sequence[Array]) -> tuple[list[Array], IntVector]:
    """Return the pieces with the small ones copied into one, and the number of each row among all `pieces`."""
    ends = np.cumsum([piece.shape[0] for piece in pieces])
    places = [np.arange(end - piece.shape[0], end) for piece, end in zip(pieces, ends, strict=True)]
    small = [i for i, piece in enumerate(pieces) if piece.shape[0] < FEW_ROWS]
    if len(small) < 2:
        return list(pieces), np.arange(ends[-1])
    large = [i for i in range(len(pieces)) if i not in small]
    one = array_api_compat.array_namespace(pieces[0]).concat([pieces[i] for i in small])
    return [*(pieces[i] for i in large), one], np.concatenate([places[i] for i in (*large, *small)])


def row_squares(matrix: Array, center: Array | None = None, *, rough: bool = False) -> FloatVector:
    """Return the `(m,)` squared norms of the rows, after `center` was subtracted from each row.

    They are computed in float64. With `rough`, squares are computed in the type of the matrix, which is faster.
    """
    xp, (m, d), (rows, columns, steps) = array_api_compat.array_namespace(matrix), matrix.shape, SQUARES
    programs = _blocks(d, columns * steps)
    out = xp.empty((programs, m), dtype=matrix.dtype if rough else xp.float64, device=matrix.device)
    with xp.cuda.device(matrix.device):
        _kernels().square_kernel[(_blocks(m, rows), programs)](
            matrix, center, out, matrix.stride(0), m, d, rows, columns
        )
    return np.asarray(to_numpy(xp.sum(out, axis=0, dtype=xp.float64)))


def weighted_sum(weights: FloatVector, matrix: Array) -> Array:
    """Return the weighted sum of the rows, `(d,)`, in the type of the matrix."""
    xp, (m, d), (rows, columns) = array_api_compat.array_namespace(matrix), matrix.shape, SUMS
    out = xp.empty(d, dtype=matrix.dtype, device=matrix.device)
    with xp.cuda.device(matrix.device):
        _kernels().sum_kernel[(_blocks(d, columns),)](
            matrix, like(weights, matrix), out, matrix.stride(0), m, d, rows, columns
        )
    return out


def column_statistic(matrix: Array, kind: int, count: int = 0, rows: IntVector | None = None) -> Array | None:
    """Return the `MEDIAN`, the `TRIMMED_MEAN` or the `MEAN_AROUND_MEDIAN` of each column.

    `count` is how many values a trimmed mean drops at each end, or how many a mean around the median averages. If
    `rows` is given, only these rows are used. The result is None if this function does not suit the matrix.
    """
    xp, d = array_api_compat.array_namespace(matrix), matrix.shape[1]
    m = matrix.shape[0] if rows is None else rows.size
    if m > MOST_ROWS or matrix.dtype != xp.float32 or not suits(matrix):
        return None
    out = xp.empty(d, dtype=matrix.dtype, device=matrix.device)
    index = index_like(np.arange(m) if rows is None else rows, matrix)
    size = max(1 << (m - 1).bit_length(), FEWEST_HELD)
    with xp.cuda.device(matrix.device):
        _kernels().column_kernel[(_blocks(d, SORTED),)](
            matrix, index, out, matrix.stride(0), m, d, count, kind, size, SORTED, num_warps=max(1, size // HELD)
        )
    return out
