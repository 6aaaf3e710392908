r"""How the matrix autoregressive model (MAR) is fitted to the remembered rounds, and what it forecasts.

The model says that :math:`X_t \approx \sum_i A_i X_{t-i} B_i^T`, where X has a column for each client. A mixes
parameters, and B mixes clients.

If FLANDERS fits the model in every round, it needs only the forecast, and neither A nor B. If a fit is used again
in later rounds, both are kept: B as it is, and :math:`A_i = Z^T C_i Z`, where the rows of Z are the vectors to
which the model was fitted, and :math:`C_i` is a small matrix. So the large matrix :math:`A_i` is never formed. A
later forecast is :math:`\sum_i B_i X_{t-i} Z^T C_i^T Z`, where X has a row for each client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, rounding_of
from flanders.checks import check_number
from flanders.filters.forecast.history import Numbering
from flanders.linalg import mar
from flanders.linalg.blocks import centred_block
from flanders.linalg.products import inner_products
from flanders.round import ClientId
from flanders.state import saveable


@dataclass(frozen=True)
class Als:
    """Alternating least squares: how `Flanders` estimates A and B.

    Parameters
    ----------
    iterations
        The most iterations, N.
    tolerance
        The relative change at which the iterations stop.
    ridge_a, ridge_b
        The penalties alpha and beta on the squares of A and B.
    refit_every
        Once the window of remembered rounds is full, estimate A and B only once in this many rounds. The rounds in
        between are forecast with the last estimate. A client that the fit does not know is scored by its distance
        to the global model.
    """

    iterations: int = 100
    tolerance: float = 1e-8
    ridge_a: float = 0.0
    ridge_b: float = 0.0
    refit_every: int = 1

    def __post_init__(self) -> None:
        check_number("Als", "iterations", self.iterations, 1, whole=True)
        for name in ("tolerance", "ridge_a", "ridge_b"):
            check_number("Als", name, getattr(self, name), 0)
        check_number("Als", "refit_every", self.refit_every, 1, whole=True)


@saveable
@dataclass(frozen=True, eq=False)
class KeptFit:
    """The coefficients of a fit. They take as much memory as the rounds to which the model was fitted."""

    clients: tuple[ClientId, ...]
    """The clients that the rows and columns of B stand for."""
    vectors: Array
    """Z, `(k, d)`."""
    inner: tuple[FloatMatrix, ...]
    """C_1 .. C_w, `(k, k)` each."""
    mixing: tuple[FloatMatrix, ...]
    """B_1 .. B_w, `(h, h)` each, where h is the number of `clients`."""
    age: int = 0
    """How many rounds it has forecast."""

    def older(self) -> KeptFit:
        """Return the fit after one more round."""
        return replace(self, age=self.age + 1)


@dataclass(frozen=True)
class Forecaster:
    """MAR of some order, with the solver that fits it; see `Flanders`."""

    order: int
    center: bool
    solver: Als

    def coefficients(self, numbering: Numbering, gram: FloatMatrix) -> FloatMatrix:
        """Return each client's forecast as a weighted sum of vectors: `(places, m)` weights.

        Column j holds the weights of the vectors that `numbering` lists, for the forecast of client j. `gram` holds
        the inner products of these vectors. Every remembered round gets a vector for every remembered client. The
        vector of a client that was absent is that round's global model. The forecast
        for a client that was in none of the last `order` rounds is the global model. If there are too few rounds
        for a training pair, the forecast is the client's vector in the newest round.
        """
        clients = numbering.round_.clients
        everyone = numbering.remembered_clients()
        places = [numbering.columns(i, everyone) for i in range(len(numbering.snapshots))]
        seen = numbering.recent_clients(self.order)
        coefficients = np.zeros((gram.shape[0], len(clients)))
        known = [row for row, c in enumerate(clients) if c in seen]
        new = [row for row, c in enumerate(clients) if c not in seen]
        coefficients[numbering.global_model, new] = 1.0
        if len(places) <= self.order:
            coefficients[numbering.columns(len(places) - 1, [clients[r] for r in known]), known] = 1.0
            return coefficients
        remembered = np.arange(numbering.starts[-1])
        index = [*remembered, numbering.origin]
        basis = mar.coordinates(gram[np.ix_(index, index)], rounding_of(numbering.round_.updates))
        vectors = basis[:, :-1] - (0.0 if self.center else basis[:, -1:])
        found = mar.fit(
            [vectors[:, p] for p in places],
            order=self.order,
            iterations=self.solver.iterations,
            tolerance=self.solver.tolerance,
            ridge_a=self.solver.ridge_a,
            ridge_b=self.solver.ridge_b,
        )
        column = {c: i for i, c in enumerate(everyone)}
        mixing = found.coefficients[:, [column[clients[r]] for r in known]]
        full = np.zeros((gram.shape[0], len(known)))
        np.add.at(full, np.concatenate(places[self.order :]), mixing)
        if self.center:  # the sums are displacements, so add the global model
            full[numbering.global_model] += 1.0 - mixing.sum(axis=0)
        coefficients[:, known] = full
        return coefficients

    def kept_fit(self, numbering: Numbering, last: KeptFit | None) -> KeptFit | None:
        """Return the last fit, or a new one if there is none or it has served for `refit_every` rounds.

        None if too few rounds are remembered for a fit.
        """
        if last is not None and last.age < self.solver.refit_every:
            return last
        return self._fit(numbering) if len(numbering.snapshots) > self.order else None

    def _fit(self, numbering: Numbering) -> KeptFit:
        xp = array_api_compat.array_namespace(numbering.round_.updates)
        everyone = numbering.remembered_clients()
        rows = [self.remembered_rows(numbering, i, everyone) for i in range(len(numbering.snapshots))]
        vectors = xp.concat(rows)
        basis = mar.coordinates(inner_products([vectors]), rounding_of(vectors))
        h = len(everyone)
        found = mar.fit_by_als(
            [basis[:, i * h : (i + 1) * h] for i in range(len(rows))],
            order=self.order,
            iterations=self.solver.iterations,
            tolerance=self.solver.tolerance,
            ridge_a=self.solver.ridge_a,
            ridge_b=self.solver.ridge_b,
        )
        back = mar.pseudo_inverse(basis)  # from the basis to sums of the vectors
        return KeptFit(everyone, vectors, tuple(back @ a @ back.T for a in found.a), tuple(found.b))

    def remembered_rows(self, numbering: Numbering, snapshot: int, clients: tuple[ClientId, ...]) -> Array:
        """Return the vectors of clients in a snapshot, `(h, d)`. For an absent client it is the global model.

        With `center` they are displacements from the current global model, in the widest float.
        """
        xp = array_api_compat.array_namespace(numbering.round_.updates)
        rows = xp.stack([numbering.vector(int(place)) for place in numbering.columns(snapshot, clients)])
        return centred_block(rows, numbering.round_.global_model, slice(None)) if self.center else rows
