r"""Fits the matrix autoregressive model (MAR) of `Flanders` to the remembered rounds, and computes its forecasts.

The MAR model says that :math:`X_t \approx \sum_i A_i X_{t-i} B_i^T`. Here :math:`X_t` is a matrix with a column for
each client, which is the client's model in round t. The sum is over i = 1 to w, where w is the order of the MAR
model. The matrix :math:`A_i` combines parameters, and the matrix :math:`B_i` combines clients.

If the MAR model is fitted in every round, only the forecast is needed, and neither A nor B is stored. If a fit is
used again in later rounds, B is stored. A is too large, since it has a row and a column for each parameter. But
:math:`A_i = Z^T C_i Z`, where the rows of Z are the vectors to which the MAR model was fitted, and :math:`C_i` is a
small matrix. So Z and the matrices :math:`C_i` are stored instead of A. A later forecast is
:math:`\sum_i B_i Y_{t-i} Z^T C_i^T Z`, where :math:`Y_t` is the transpose of :math:`X_t`, with a row for each
client.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, FloatMatrix, rounding_of
from flanders.checks import check_number
from flanders.client_ids import ClientId
from flanders.filters.forecast.history import Numbering
from flanders.linalg import mar
from flanders.linalg.blocks import centred_block
from flanders.linalg.products import inner_products
from flanders.state import saveable


@dataclass(frozen=True)
class Als:
    """The parameters of alternating least squares, by which `Flanders` estimates A and B.

    Parameters
    ----------
    iterations
        The largest number of iterations.
    tolerance
        The iterations stop when the relative change of the coefficients is at most this.
    ridge_a, ridge_b
        The factors of the penalties on the squared numbers in A and B. By default there are no penalties.
    refit_every
        Once `window` rounds are remembered, estimate A and B only once in this many rounds. The rounds in between
        are forecast with the last estimate. If a client was in none of the rounds of this estimate, it is scored by
        the distance of its model to the global model.
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
    """The coefficients of a fit that is used for several rounds.

    They need as much memory as the rounds to which the MAR model was fitted.
    """

    clients: tuple[ClientId, ...]
    """The h clients. B has a row and a column for each of them."""
    vectors: Array
    """The matrix Z, `(k, d)`: the k vectors to which the MAR model was fitted."""
    inner: tuple[FloatMatrix, ...]
    """The matrices C_1 to C_w, `(k, k)` each."""
    mixing: tuple[FloatMatrix, ...]
    """The matrices B_1 to B_w, `(h, h)` each."""
    age: int = 0
    """How many rounds were forecast with this fit."""


@dataclass(frozen=True)
class Forecaster:
    """A MAR model and how it is fitted. `Flanders` explains the attributes."""

    order: int
    center: bool
    solver: Als

    def coefficients(self, numbering: Numbering, gram: FloatMatrix) -> FloatMatrix:
        """Return the weights of each client's forecast, which is a weighted sum of the vectors of `numbering`.

        Column j of the result has the weights for client j. `gram` has the inner products of the vectors. If a
        client was absent in a remembered round, the global model of that round takes the place of its model. If a
        client was in none of the last `order` rounds, its forecast is the global model. If there are too few rounds
        to fit the MAR model, the forecast is the client's model in the newest remembered round.
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
        fitted = mar.fit(
            [vectors[:, p] for p in places],
            order=self.order,
            iterations=self.solver.iterations,
            tolerance=self.solver.tolerance,
            ridge_a=self.solver.ridge_a,
            ridge_b=self.solver.ridge_b,
        )
        column = {c: i for i, c in enumerate(everyone)}
        mixing = fitted.coefficients[:, [column[clients[r]] for r in known]]
        weights = np.zeros((gram.shape[0], len(known)))
        np.add.at(weights, np.concatenate(places[self.order :]), mixing)
        if self.center:  # the sums are differences from the global model, so add it
            weights[numbering.global_model] += 1.0 - mixing.sum(axis=0)
        coefficients[:, known] = weights
        return coefficients

    def kept_fit(self, numbering: Numbering, last: KeptFit | None) -> KeptFit | None:
        """Return the last fit. If there is none, or if it was used for `refit_every` rounds, return a new fit.

        Return None if too few rounds are remembered for a fit.
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
        fitted = mar.fit_by_als(
            [basis[:, i * h : (i + 1) * h] for i in range(len(rows))],
            order=self.order,
            iterations=self.solver.iterations,
            tolerance=self.solver.tolerance,
            ridge_a=self.solver.ridge_a,
            ridge_b=self.solver.ridge_b,
        )
        back = mar.pseudo_inverse(basis)  # turns coordinates in the basis into weights of the vectors
        return KeptFit(everyone, vectors, tuple(back @ a @ back.T for a in fitted.a), tuple(fitted.b))

    def remembered_rows(self, numbering: Numbering, snapshot: int, clients: tuple[ClientId, ...]) -> Array:
        """Return the models of h clients in a snapshot, `(h, d)`.

        The row of an absent client is the snapshot's global model. With `center`, the current global model is
        subtracted from each row, in the widest float type.
        """
        xp = array_api_compat.array_namespace(numbering.round_.updates)
        rows = xp.stack([numbering.vector(int(place)) for place in numbering.columns(snapshot, clients)])
        return centred_block(rows, numbering.round_.global_model, slice(None)) if self.center else rows
