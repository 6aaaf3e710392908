r"""A fit that is kept for several rounds: the coefficients of MAR themselves, applied to models they have not seen.

Within a round FLANDERS needs no A and no B, only the forecast. To use a fit again they must be kept:
:math:`A_i = Z^T C_i Z` with Z the vectors it was fitted to, a row each, and B as it is. A later forecast is
:math:`\sum_i B_i X_{t-i} Z^T C_i^T Z` in the package's layout, a row per client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, rounding_of
from flanders.filters.forecast.history import Layout
from flanders.filters.forecast.scoring import Forecaster, displacements, measure
from flanders.linalg import mar
from flanders.linalg.blocks import centred_block
from flanders.linalg.products import inner_products, projections
from flanders.round import ClientId
from flanders.state import saveable


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


def kept_distances(
    layout: Layout, fit: KeptFit | None, forecaster: Forecaster, distance: str | float
) -> FloatVector:
    """Return how far each client's model is from its forecast by a kept fit.

    Without a fit that is the client's own last model; who is not in the fit, or in none of the last `order` rounds,
    is forecast to send the global model.
    """
    newest = layout.snapshots[-1]
    if fit is None:
        vectors, rows, everyone = newest.rows, np.eye(len(newest.clients)), newest.clients
        known = set(everyone)
    else:
        vectors, rows, everyone = fit.vectors, np.zeros((len(fit.clients), fit.vectors.shape[0])), fit.clients
        for lag, (c, b) in enumerate(zip(fit.inner, fit.mixing, strict=True), start=1):
            seen = remembered_rows(layout, len(layout.snapshots) - lag, everyone, forecaster.center)
            rows = rows + b @ projections(seen, vectors) @ c.T
        known = set(everyone) & {c for s in layout.snapshots[-forecaster.order :] for c in s.clients}
    place = {c: i for i, c in enumerate(everyone)}
    clients = layout.round_.clients
    factors = np.stack([rows[place[c]] if c in known else np.zeros(rows.shape[1]) for c in clients])
    from_global = fit is not None and forecaster.center  # the forecast is a displacement
    shift = np.array([0.0 if from_global or c not in known else 1.0 for c in clients])
    return measure(displacements(layout.round_, [vectors], factors, shift, centred=False), distance)


def remembered_rows(layout: Layout, snapshot: int, clients: tuple[ClientId, ...], center: bool) -> Array:
    """Return clients' vectors in a snapshot, `(h, d)`, absent ones by its global model.

    With `center` they are displacements from the current global model, in the widest float.
    """
    xp = array_api_compat.array_namespace(layout.round_.updates)
    rows = xp.stack([layout.vector(int(place)) for place in layout.columns(snapshot, clients)])
    return centred_block(rows, layout.round_.global_model, slice(None)) if center else rows
