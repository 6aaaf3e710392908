"""Scores from inner products: how far each model of the round is from its forecast."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders import mar
from flanders.filters.history import Layout
from flanders.geometry import FloatMatrix, centred_block, column_blocks, like, on_host, rounding_of
from flanders.types import FloatVector, to_numpy

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
    if distance not in EUCLIDEAN:
        return _score_by_parameter(layout, coefficients, 1.0 if distance == "l1" else float(distance))
    around = coefficients.copy()  # the forecast as a displacement from the global model
    around[layout.origin] += 1.0 - coefficients.sum(axis=0)
    sent = np.zeros_like(coefficients)
    sent[layout.current, np.arange(len(layout.current))] = 1.0
    if distance == "cosine":
        inner, sizes = (
            quadratic(gram, sent, around),
            quadratic(gram, sent, sent) * quadratic(gram, around, around),
        )
        return 1.0 - np.divide(inner, np.sqrt(sizes), out=np.zeros_like(inner), where=sizes > 0)
    squared = np.maximum(quadratic(gram, sent - around, sent - around), 0.0)
    return np.sqrt(squared) if distance == "l2" else squared


def quadratic(gram: FloatMatrix, left: FloatMatrix, right: FloatMatrix) -> FloatVector:
    """Return the inner product of each pair of columns under `gram`."""
    return np.asarray(np.sum(left * (gram @ right), axis=0))


def _score_by_parameter(layout: Layout, coefficients: FloatMatrix, p: float) -> FloatVector:
    """Return L^p distances, which no inner product gives: the forecast is formed, a block at a time."""
    pieces = [on_host(v) for s in layout.snapshots for v in (s.rows, s.global_model[None, :])]
    g, sent = on_host(layout.round_.global_model), on_host(layout.round_.updates)
    xp = array_api_compat.array_namespace(sent)
    around = coefficients[: layout.starts[-1]].T
    shift = 1.0 - around.sum(axis=1) - coefficients[layout.global_model]  # of the origin, which is -g here
    total = 0.0
    for columns in column_blocks(*pieces, sent):
        blocks = xp.concat([centred_block(piece, g, columns) for piece in pieces])
        wide = blocks.dtype
        forecast = like(around, blocks) @ blocks - like(shift, blocks)[:, None] * xp.astype(g[None, columns], wide)
        total = total + xp.sum(xp.abs(centred_block(sent, g, columns) - forecast) ** p, axis=1)
    return np.asarray(to_numpy(total), dtype=np.float64) ** (1 / p)
