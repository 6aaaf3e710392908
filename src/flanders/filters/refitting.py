r"""A fit that is kept for several rounds: the coefficients of MAR themselves, applied to models they have not seen.

Within a round FLANDERS needs no A and no B, only the forecast. To use a fit again they must be kept:
:math:`A_i = Z^T C_i Z` with Z the vectors it was fitted to, a row each, and B as it is. A later forecast is
:math:`\sum_i B_i X_{t-i} Z^T C_i^T Z` in the package's layout, a row per client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import array_api_compat
import numpy as np

from flanders import mar
from flanders.filters.forecasting import Forecaster
from flanders.filters.history import Layout
from flanders.geometry import FloatMatrix, inner_products, like, projections, rounding_of, squared_norms, widest
from flanders.state import saveable
from flanders.types import Array, ClientId, FloatVector, to_numpy


@saveable
@dataclass(frozen=True, eq=False)
class KeptFit:
    """The coefficients of a fit, in a form whose size is that of the rounds it was fitted to."""

    clients: tuple[ClientId, ...]
    """Whom the rows and columns of B stand for."""
    vectors: Array
    """Z, `(k, d)`."""
    inner: tuple[FloatMatrix, ...]
    """C_1 .. C_w, `(k, k)` each."""
    mixing: tuple[FloatMatrix, ...]
    """B_1 .. B_w, `(h, h)` each."""
    age: int = 0
    """How many rounds it has forecast."""

    def older(self) -> KeptFit:
        """Return the fit after one more round."""
        return replace(self, age=self.age + 1)


def fit_history(layout: Layout, forecaster: Forecaster) -> KeptFit:
    """Fit MAR to the remembered rounds, of which there must be more than its order."""
    xp = array_api_compat.array_namespace(layout.round_.updates)
    everyone = tuple(dict.fromkeys(c for s in layout.snapshots for c in s.clients))
    rows = [remembered_rows(layout, i, everyone, forecaster.center) for i in range(len(layout.snapshots))]
    vectors = xp.concat(rows)
    basis = mar.coordinates(inner_products([vectors]), rounding_of(vectors))
    h = len(everyone)
    found = mar.fit_by_als(
        [basis[:, i * h : (i + 1) * h] for i in range(len(rows))],
        order=forecaster.order,
        iterations=forecaster.iterations,
        tolerance=forecaster.tolerance,
        ridge_a=forecaster.ridge_a,
        ridge_b=forecaster.ridge_b,
    )
    back = mar.pseudo_inverse(basis)  # from the basis to sums of the vectors
    return KeptFit(everyone, vectors, tuple(back @ a @ back.T for a in found.a), tuple(found.b))


def forecast_rows(layout: Layout, fit: KeptFit | None, forecaster: Forecaster) -> Array:
    """Return the forecast of each client of the round, `(m, d)`, in the widest float.

    Without a fit it is the client's own last model; who is not in the fit, or in none of the last `order` rounds,
    is forecast to send the global model.
    """
    xp = array_api_compat.array_namespace(layout.round_.updates)
    wide, clients = widest(xp), layout.round_.clients
    g = xp.astype(layout.round_.global_model, wide)
    if fit is None:
        last = remembered_rows(layout, len(layout.snapshots) - 1, clients, center=False)
        known = set(layout.snapshots[-1].clients)
    else:
        last = 0.0
        for lag, (c, b) in enumerate(zip(fit.inner, fit.mixing, strict=True), start=1):
            rows = remembered_rows(layout, len(layout.snapshots) - lag, fit.clients, forecaster.center)
            weights = b @ projections(rows, fit.vectors) @ c.T
            last = last + like(weights, rows, wide) @ xp.astype(fit.vectors, wide)
        if forecaster.center:
            last = last + g[None, :]
        place = {c: i for i, c in enumerate(fit.clients)}
        last = xp.stack([last[place[c], :] if c in place else g for c in clients])
        recent = layout.snapshots[-forecaster.order :]
        known = set(fit.clients) & {c for s in recent for c in s.clients}
    return xp.stack([last[i, :] if c in known else g for i, c in enumerate(clients)])


def remembered_rows(layout: Layout, snapshot: int, clients: tuple[ClientId, ...], center: bool) -> Array:
    """Return clients' vectors in a snapshot, `(h, d)`, absent ones by its global model, in the widest float."""
    xp = array_api_compat.array_namespace(layout.round_.updates)
    rows = xp.stack([layout.vector(int(place)) for place in layout.columns(snapshot, clients)])
    rows = xp.astype(rows, widest(xp))
    return rows - xp.astype(layout.round_.global_model, widest(xp))[None, :] if center else rows


def distances(updates: Array, forecast: Array, global_model: Array, distance: str | float) -> FloatVector:
    """Return how far each model is from its forecast; see `Flanders` for the names of distances."""
    xp = array_api_compat.array_namespace(updates)
    sent = xp.astype(updates, widest(xp))
    if distance in ("squared-l2", "l2"):
        squared = squared_norms(sent, forecast)
        return squared if distance == "squared-l2" else np.sqrt(squared)
    if distance == "cosine":
        g = xp.astype(global_model, widest(xp))[None, :]
        u, v = sent - g, forecast - g
        inner, sizes = numbers(xp.vecdot(u, v)), squared_norms(u) * squared_norms(v)
        return 1.0 - np.divide(inner, np.sqrt(sizes), out=np.zeros_like(inner), where=sizes > 0)
    p = 1.0 if distance == "l1" else float(distance)
    return numbers(xp.sum(xp.abs(sent - forecast) ** p, axis=1)) ** (1 / p)


def numbers(array: Any) -> FloatVector:
    """Return an array as float64 on the host."""
    return np.asarray(to_numpy(array), dtype=np.float64)
