"""Scores from inner products: how far each model of the round is from its forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, like, on_host, rounding_of, to_numpy
from flanders.filters.forecast.history import Layout
from flanders.linalg import mar
from flanders.linalg.blocks import centred_block, column_blocks
from flanders.round import Round

EUCLIDEAN = ("squared-l2", "l2", "cosine")
"""Distances that follow from inner products alone."""


@dataclass(frozen=True)
class Forecaster:
    """The settings of MAR(order); see `Flanders`."""

    order: int
    iterations: int
    tolerance: float
    ridge_a: float
    ridge_b: float
    center: bool

    def forecast(self, layout: Layout, gram: FloatMatrix) -> FloatMatrix:
        """Return `(places, m)` coefficients: each client's forecast as a sum of the vectors of the layout.

        The matrices of all remembered rounds are extended to all clients in any of them, with that
        round's global model for who was absent. Who is in none of the last `order` rounds has no
        forecast but the global model. With too few rounds for a training pair, the
        forecast is the client's vector in the newest one.
        """
        clients = layout.round_.clients
        everyone = list(dict.fromkeys(c for s in layout.snapshots for c in s.clients))
        places = [layout.columns(i, everyone) for i in range(len(layout.snapshots))]
        seen = {c for s in layout.snapshots[-self.order :] for c in s.clients}
        coefficients = np.zeros((gram.shape[0], len(clients)))
        known = [row for row, c in enumerate(clients) if c in seen]
        new = [row for row, c in enumerate(clients) if c not in seen]
        coefficients[layout.global_model, new] = 1.0
        if len(places) <= self.order:
            coefficients[layout.columns(len(places) - 1, [clients[r] for r in known]), known] = 1.0
            return coefficients
        remembered = np.arange(layout.starts[-1])
        index = [*remembered, layout.origin]
        basis = mar.coordinates(gram[np.ix_(index, index)], rounding_of(layout.round_.updates))
        vectors = basis[:, :-1] - (0.0 if self.center else basis[:, -1:])
        found = mar.fit(
            [vectors[:, p] for p in places],
            order=self.order,
            iterations=self.iterations,
            tolerance=self.tolerance,
            ridge_a=self.ridge_a,
            ridge_b=self.ridge_b,
        )
        column = {c: i for i, c in enumerate(everyone)}
        mixing = found.coefficients[:, [column[clients[r]] for r in known]]
        full = np.zeros((gram.shape[0], len(known)))
        np.add.at(full, np.concatenate(places[self.order :]), mixing)
        if self.center:  # the sums are of displacements: put the global model back
            full[layout.global_model] += 1.0 - mixing.sum(axis=0)
        coefficients[:, known] = full
        return coefficients


def score(layout: Layout, gram: FloatMatrix, coefficients: FloatMatrix, distance: str | float) -> FloatVector:
    """Return the distance of each client's model to its forecast, given as coefficients."""
    if distance not in EUCLIDEAN:  # no inner product gives it
        pieces = [v for s in layout.snapshots for v in (s.rows, s.global_model[None, :])]
        factors = coefficients[: layout.starts[-1]].T
        shift = 1.0 - factors.sum(axis=1) - coefficients[layout.global_model]  # of the origin, which is -g there
        return measure(displacements(layout.round_, pieces, factors, shift, centred=True), distance)
    around = coefficients.copy()  # the forecast as a displacement from the global model
    around[layout.origin] += 1.0 - coefficients.sum(axis=0)
    sent = np.zeros_like(coefficients)
    sent[layout.current, np.arange(len(layout.current))] = 1.0
    if distance == "cosine":
        squares = quadratic(gram, sent, sent), quadratic(gram, around, around)
        return less_cosine(quadratic(gram, sent, around), *squares)
    squared = np.maximum(quadratic(gram, sent - around, sent - around), 0.0)
    return np.sqrt(squared) if distance == "l2" else squared


def quadratic(gram: FloatMatrix, left: FloatMatrix, right: FloatMatrix) -> FloatVector:
    """Return the inner product of each pair of columns under `gram`."""
    return np.asarray(np.sum(left * (gram @ right), axis=0))


def less_cosine(inner: FloatVector, one: FloatVector, other: FloatVector) -> FloatVector:
    """Return 1 less the cosine from inner products and both squared lengths; 1 where one has no length."""
    sizes = np.sqrt(np.maximum(one, 0.0)) * np.sqrt(np.maximum(other, 0.0))  # their product may overflow
    return np.asarray(1.0 - np.divide(inner, sizes, out=np.zeros_like(inner), where=sizes > 0))


def displacements(
    round_: Round, pieces: Sequence[Array], factors: FloatMatrix, shift: FloatVector, *, centred: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of columns of two displacements from the global model g: as sent, and as forecast.

    The forecast is `factors` times all rows of `pieces` (`centred`: their displacements), less `shift` times g.
    """
    sent, g, pieces = on_host(round_.updates), on_host(round_.global_model), [on_host(piece) for piece in pieces]
    xp = array_api_compat.array_namespace(sent)
    for columns in column_blocks(*pieces, sent):
        rows = xp.concat([centred_block(piece, g if centred else None, columns) for piece in pieces])
        back = like(shift, rows)[:, None] * xp.astype(g[None, columns], rows.dtype)
        yield centred_block(sent, g, columns), like(factors, rows) @ rows - back


def measure(blocks: Iterator[tuple[Array, Array]], distance: str | float) -> FloatVector:
    """Return the distances between rows that come in pairs of blocks of columns; see `Flanders` for their names."""
    if distance not in EUCLIDEAN:
        return lp_norms((one - other for one, other in blocks), 1.0 if distance == "l1" else float(distance))
    totals: list[Any] = [0.0, 0.0]
    for one, other in blocks:
        xp = array_api_compat.array_namespace(one)
        if distance == "cosine":
            found = xp.vecdot(one, other), xp.stack([xp.vecdot(one, one), xp.vecdot(other, other)])
        else:
            found = xp.vecdot(one - other, one - other), 0.0
        totals = [total + part for total, part in zip(totals, found, strict=True)]
    squared = numbers(totals[0])
    if distance == "cosine":
        return less_cosine(squared, *numbers(totals[1]))
    return squared if distance == "squared-l2" else np.sqrt(squared)


def lp_norms(blocks: Iterator[Array], p: float) -> FloatVector:
    """Return the L^p norms of rows that come in blocks of columns.

    They are sums of shares of each row's largest number, which neither overflow nor vanish. For a p so small that a
    norm itself overflows, all are divided by d^(1/p): power means, which compare alike.

    Examples
    --------
    >>> lp_norms(iter([np.array([[3.0], [1.0]]), np.array([[-4.0], [1.0]])]), 2.0)
    array([5.        , 1.41421356])
    """
    largest: Any = None
    total: Any = 0.0
    d = 0
    for block in blocks:
        xp, d = array_api_compat.array_namespace(block), d + block.shape[1]
        sizes = xp.abs(block)
        new = xp.max(sizes, axis=1)
        new = new if largest is None else xp.maximum(largest, new)
        unit = xp.where(new > 0, new, xp.ones_like(new))
        if largest is not None:
            total = total * (largest / unit) ** p
        total, largest = total + xp.sum((sizes / unit[:, None]) ** p, axis=1), new
    sums, scale = numbers(total), numbers(largest)
    with np.errstate(over="ignore"):
        norms = scale * sums ** (1 / p)
    return norms if np.all(np.isfinite(norms)) else scale * (sums / d) ** (1 / p)


def numbers(array: Any) -> FloatVector:
    """Return an array as float64 on the host."""
    return np.asarray(to_numpy(array), dtype=np.float64)
