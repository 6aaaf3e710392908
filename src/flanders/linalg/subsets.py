"""Finds, among all subsets with a given number of rows, the one with the smallest diameter or the smallest spread.

The aggregators in `flanders.aggregators.subsets` use these functions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from flanders.arrays import FloatMatrix, IntVector
from flanders.checks import InputError

MOST_BRANCHES = 100_000
"""The search of `smallest_diameter` tries at most this many branches, and `smallest_spread` at most this many
subsets. So each takes at most a few seconds."""
BATCH = 4096
"""The number of subsets whose spread is computed at a time. With more, the computation needs more memory."""


def smallest_diameter(distances: FloatMatrix, size: int) -> IntVector:
    """Return the `size` rows with the smallest diameter: the largest distance between two of them.

    If several subsets have the smallest diameter, return the one with the lowest row numbers.

    The search tries diameters by bisection. For a diameter D, two rows are called a long pair if they are farther
    apart than D. A subset has a diameter of at most D if every long pair has a row outside the subset. So the rows
    outside must be a cover: at most m - `size` of the m rows, with a row of every long pair. To find a cover, the
    search takes a row and tries two branches. In one branch, the row is in the cover. In the other branch, all rows
    that form a long pair with it are in the cover.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 5.0, 6.0, 6.5])
    >>> smallest_diameter(np.abs(x[:, None] - x), 3)
    array([2, 3, 4])
    """
    m = distances.shape[0]
    diameters = np.unique(distances)
    low, high = 0, diameters.size - 1
    while low < high:
        middle = (low + high) // 2
        has_cover = bool(_covers(distances > diameters[middle], m - size, first=True))
        low, high = (low, middle) if has_cover else (middle + 1, high)
    covers = _covers(distances > diameters[low], m - size, first=False)
    outside = [np.setdiff1d(np.arange(m), sorted(cover)) for cover in covers]
    subsets = [rows[:size] for rows in outside]  # a small cover leaves more than `size` rows: take the first ones
    return np.array(min(subsets, key=lambda rows: tuple(rows.tolist())), dtype=np.int64)


def smallest_spread(products: FloatMatrix, size: int) -> IntVector:
    """Return the `size` rows with the smallest spread: the largest eigenvalue of their covariance matrix.

    If several subsets have the smallest spread, return the one with the lowest row numbers. All subsets are tried.
    `products` has the inner products of all rows.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 5.0, 6.0, 6.5])
    >>> smallest_spread(np.outer(x, x), 3)
    array([2, 3, 4])
    """
    m = products.shape[0]
    count = math.comb(m, size)
    if count > MOST_BRANCHES:
        raise InputError(
            f"There are {count} ways to choose {size} of {m} updates. All would have to be tried, and at most "
            f"{MOST_BRANCHES} are allowed. Lower `num_malicious`, or choose an aggregator that searches less."
        )
    subsets = itertools.combinations(range(m), size)
    best, chosen = math.inf, np.arange(size)
    while batch := list(itertools.islice(subsets, BATCH)):
        rows = np.array(batch)
        part = products[rows[:, :, None], rows[:, None, :]]
        part = part - part.mean(axis=1, keepdims=True) - part.mean(axis=2, keepdims=True)
        part += products[rows[:, :, None], rows[:, None, :]].mean(axis=(1, 2), keepdims=True)
        largest = np.round(np.linalg.eigvalsh(part)[:, -1] / (np.abs(products).max() or 1.0), 12)
        first = int(np.argmin(largest))
        if largest[first] < best:
            best, chosen = float(largest[first]), rows[first]
    return chosen.astype(np.int64)


def _covers(apart: np.ndarray, most: int, *, first: bool) -> list[frozenset[int]]:
    """Return the covers: sets of at most `most` rows that contain a row of every pair marked in `apart`.

    If `first` is true, return only one cover. If there is none, the list is empty.
    """
    covers: set[frozenset[int]] = set()
    branches = 0
    todo = [(frozenset[int](), apart.sum(axis=1))]
    while todo:
        taken, degrees = todo.pop()
        branches += 1
        if branches > MOST_BRANCHES:
            raise InputError(
                f"The search for the {apart.shape[0] - most} updates of {len(apart)} with the smallest diameter "
                f"took more than {MOST_BRANCHES} branches. Lower `num_malicious`, or choose an aggregator that "
                "searches less."
            )
        left = most - len(taken)
        if degrees.max(initial=0) == 0:
            covers.add(taken)
            if first:
                break
            continue
        row = int(np.argmax(degrees))
        # No row is in more pairs than `row`. So `left` rows are in at most `left * degrees[row]` pairs. The sum of
        # all degrees counts each pair twice.
        if left <= 0 or degrees.sum() > 2 * left * degrees[row]:
            continue
        partners = np.setdiff1d(np.flatnonzero(apart[row]), np.array(sorted(taken), dtype=np.int64))
        for more in ([row], partners.tolist()):
            if len(more) <= left:
                now = taken | frozenset(more)
                free = np.ones(apart.shape[0], dtype=bool)
                free[list(now)] = False
                todo.append((now, (apart & free[None, :] & free[:, None]).sum(axis=1)))
    return sorted(covers, key=sorted)
