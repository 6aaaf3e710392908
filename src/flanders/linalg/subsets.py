"""The best subset of a given size: of least diameter, or of least spread."""

from __future__ import annotations

import itertools
import math

import numpy as np

from flanders.arrays import FloatMatrix, IntVector
from flanders.checks import InputError

MOST_BRANCHES = 100_000
"""How many branches the search for a subset may take. This takes a few seconds."""
BATCH = 4096
"""Subsets whose spread is computed at a time."""


def smallest_diameter(distances: FloatMatrix, size: int) -> IntVector:
    """Return the `size` rows whose largest distance from each other is smallest; in a tie, the first such rows.

    The subset has no pair of rows farther apart than the best diameter. So the rows that are left out touch every
    pair that is. The search tries diameters by bisection. For each it looks for few rows that touch all longer
    pairs: a row or all its partners must be among them.

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
        found = _covers(distances > diameters[middle], m - size, first=True)
        low, high = (low, middle) if found else (middle + 1, high)
    covers = _covers(distances > diameters[low], m - size, first=False)
    left = [np.setdiff1d(np.arange(m), sorted(cover)) for cover in covers]
    padded = [rows[:size] for rows in left]  # a smaller cover leaves a choice: the first rows are taken
    return np.array(min(padded, key=lambda rows: tuple(rows.tolist())), dtype=np.int64)


def smallest_spread(products: FloatMatrix, size: int) -> IntVector:
    """Return the `size` rows whose covariance has the smallest largest eigenvalue; in a tie, the first such rows.

    All subsets are tried. `products` are the inner products of the rows.

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
    """Return the sets of at most `most` rows that touch every pair marked in `apart`; one of them with `first`."""
    found: set[frozenset[int]] = set()
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
            found.add(taken)
            if first:
                break
            continue
        row = int(np.argmax(degrees))
        # `left` rows with `degrees` pairs each cannot touch more pairs than this
        if left <= 0 or degrees.sum() > 2 * left * degrees[row]:
            continue
        rest = np.array(sorted(taken), dtype=np.int64)
        partners = np.setdiff1d(np.flatnonzero(apart[row]), rest)
        for more in ([row], partners.tolist()):
            if len(more) <= left:
                now = taken | frozenset(more)
                free = np.ones(apart.shape[0], dtype=bool)
                free[list(now)] = False
                todo.append((now, (apart & free[None, :] & free[:, None]).sum(axis=1)))
    return sorted(found, key=sorted)
