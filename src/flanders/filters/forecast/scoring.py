"""Computes the scores of `Flanders`: the distance of each client's model to its forecast."""

from __future__ import annotations

import numpy as np

from flanders.arrays import FloatMatrix, FloatVector
from flanders.filters.forecast.history import Numbering
from flanders.filters.forecast.solver import Forecaster, KeptFit
from flanders.linalg.distances import EUCLIDEAN, cosine_distances, distance_to_sums
from flanders.linalg.products import projections


def distances_by_products(
    numbering: Numbering, gram: FloatMatrix, coefficients: FloatMatrix, distance: str | float
) -> FloatVector:
    """Return the distance of each client's model to its forecast.

    The forecast of client j is the sum of the vectors of `numbering`, weighted by column j of `coefficients`.
    `gram` has the inner products of these vectors, from which Euclidean and cosine distances are computed. Other
    distances need the vectors themselves.
    """
    if distance not in EUCLIDEAN:
        round_ = numbering.round_
        pieces = [v for s in numbering.snapshots for v in (s.rows, s.global_model[None, :])]
        factors = coefficients[: numbering.starts[-1]].T
        # The global model g is subtracted from all vectors, so the origin becomes -g. `shift` is the weight
        # of the origin.
        shift = 1.0 - factors.sum(axis=1) - coefficients[numbering.global_model]
        return distance_to_sums(round_.updates, round_.global_model, pieces, factors, shift, distance, centred=True)
    around = coefficients.copy()  # weights that give the forecast minus the global model
    around[numbering.origin] += 1.0 - coefficients.sum(axis=0)
    sent = np.zeros_like(coefficients)
    sent[numbering.current, np.arange(len(numbering.current))] = 1.0
    if distance == "cosine":
        squares = _quadratic(gram, sent, sent), _quadratic(gram, around, around)
        return cosine_distances(_quadratic(gram, sent, around), *squares)
    squared = np.maximum(_quadratic(gram, sent - around, sent - around), 0.0)
    return np.sqrt(squared) if distance == "l2" else squared


def distances_by_fit(
    numbering: Numbering, fit: KeptFit | None, forecaster: Forecaster, distance: str | float
) -> FloatVector:
    """Return the distance of each client's model to its forecast, with the coefficients of a stored fit.

    If `fit` is None, the forecast is the client's model in the newest snapshot. If a client is not in the fit, or
    was in none of the last `order` rounds, its forecast is the global model.
    """
    newest = numbering.snapshots[-1]
    if fit is None:
        vectors, rows, everyone = newest.rows, np.eye(len(newest.clients)), newest.clients
        known = set(everyone)
    else:
        vectors, rows, everyone = fit.vectors, np.zeros((len(fit.clients), fit.vectors.shape[0])), fit.clients
        for lag, (c, b) in enumerate(zip(fit.inner, fit.mixing, strict=True), start=1):
            seen = forecaster.remembered_rows(numbering, len(numbering.snapshots) - lag, everyone)
            rows = rows + b @ projections(seen, vectors) @ c.T
        known = set(everyone) & numbering.recent_clients(forecaster.order)
    place = {c: i for i, c in enumerate(everyone)}
    round_ = numbering.round_
    factors = np.stack([rows[place[c]] if c in known else np.zeros(rows.shape[1]) for c in round_.clients])
    from_global = fit is not None and forecaster.center  # whether forecasts are differences from the global model
    shift = np.array([0.0 if from_global or c not in known else 1.0 for c in round_.clients])
    return distance_to_sums(round_.updates, round_.global_model, [vectors], factors, shift, distance, centred=False)


def _quadratic(gram: FloatMatrix, left: FloatMatrix, right: FloatMatrix) -> FloatVector:
    """Return an inner product for each column of `left` and `right`: that of two weighted sums of vectors.

    A column of `left` has the weights of the first sum, and the same column of `right` has the weights of the
    second sum. `gram` has the inner products of the vectors.
    """
    return np.asarray(np.sum(left * (gram @ right), axis=0))
