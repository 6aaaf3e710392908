"""The adaptive attack of the FLANDERS paper: it computes the same forecast as the filter `Flanders`, and sends it.

`Flanders` forecasts each client's model from its past models, and drops clients that are far from their forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, all_finite, copied
from flanders.attacks.attack import Attack, View
from flanders.checks import InputError, check_number
from flanders.client_ids import ClientId
from flanders.linalg.mar import forecast
from flanders.linalg.selection import replace_columns, take_columns, take_rows
from flanders.state import saveable


@saveable
@dataclass(frozen=True, eq=False)
class SeenRound:
    """The models that the attacker saw in one round, and the global model that they were trained from."""

    clients: tuple[ClientId, ...]
    models: Array
    global_model: Array

    def rows(self, clients: Sequence[ClientId], columns: IntVector) -> Array:
        """Return the given columns of the clients' models. The global model takes the place of absent clients."""
        xp = array_api_compat.array_namespace(self.models)
        models_and_global = xp.concat([self.models, self.global_model[None, :]])
        row_of = {client: row for row, client in enumerate(self.clients)}
        rows = np.array([row_of.get(c, len(self.clients)) for c in clients], dtype=np.int64)
        return take_columns(take_rows(models_and_global, rows), columns)


@dataclass(frozen=True)
class Mar(Attack):
    r"""Train honestly, but replace the parameters that the filter looks at by the filter's own forecast.

    .. math:: x_c = \text{column } c \text{ of } \hat X_t = A\, X_{t-1} B^\top

    MAR, matrix autoregression, is the filter's forecasting model. :math:`X_t` has a column for each client. The
    column holds those parameters of the client's model in round t that the filter looks at. The attacker fits the
    matrices A and B to the models that the server received in the last `window` rounds. Each malicious client c
    then sends its forecast :math:`x_c` instead of what it learnt.

    If a client was absent from one of these rounds, the global model of that round takes the place of its model. If
    a malicious client was absent from all these rounds, it has no forecast and sends its honest model. If any model
    of these rounds has values that are not finite, all malicious clients send their honest models.

    Parameters
    ----------
    omniscient
        If true, the attacker knows the columns that the filter looks at (`View.server_columns`), and fits A and B
        to the models of all clients that it sees. If false, it assumes that the filter looks at the last layer
        (`View.last_layer`), and fits A and B to the models of its own clients only.
    window
        The number of rounds to fit. With 1, the forecast is each client's last model.

    Examples
    --------
    >>> attack, rng, seen = Mar(window=1), np.random.default_rng(0), np.array([0, 1])
    >>> first = View(np.array([[3.0, 1.0, 7.0]]), np.zeros(3), num_clients=4, server_columns=seen, clients=(5,))
    >>> memory = attack.remember(first, attack.craft(first, rng))
    >>> second = View(np.array([[8.0, 8.0, 8.0]]), np.zeros(3), 4, server_columns=seen, clients=(5,), memory=memory)
    >>> attack.craft(second, rng)  # the filter looks at two of the three parameters
    array([[3., 1., 8.]])

    References
    ----------
    Gabrielli et al., "Protecting federated learning from extreme model poisoning attacks via
    multidimensional time series anomaly detection": robustness against adaptive attacks.
    """

    omniscient: bool = True
    window: int = 2

    def __post_init__(self) -> None:
        check_number("Mar", "window", self.window, 1, whole=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the honest models, with forecasts in the columns that the filter looks at."""
        columns, history = self._columns(view), view.memory or ()
        seen = {client for round_ in history for client in round_.clients}
        followed = [c for c in view.clients + self._others(view) if c in seen]
        row_of = {client: row for row, client in enumerate(followed)}
        forecastable = np.array([c in row_of for c in view.clients])
        if not forecastable.any() or columns.size == 0:
            return copied(view.own)
        models = [round_.rows(followed, columns) for round_ in history]
        if not all_finite(*models):
            return copied(view.own)
        # A client without a forecast gets an arbitrary row here. `forecastable` excludes this row.
        forecasts = take_rows(forecast(models), np.array([row_of.get(c, 0) for c in view.clients]))
        return replace_columns(view.own, columns, forecasts, forecastable)

    def remember(self, view: View, sent: Array) -> tuple[SeenRound, ...]:
        """Keep the models of the last `window` rounds, as the server received them."""
        xp = array_api_compat.array_namespace(sent)
        others = self._others(view)
        models = xp.concat([sent, view.benign]) if others else copied(sent)
        seen = SeenRound(view.clients + others, models, copied(view.global_model))
        return (*(view.memory or ()), seen)[-self.window :]

    def _others(self, view: View) -> tuple[ClientId, ...]:
        return view.benign_clients if self.omniscient and view.benign is not None else ()

    def _columns(self, view: View) -> IntVector:
        d = view.own.shape[1]
        if self.omniscient:
            if view.server_columns is None:
                raise InputError(
                    "Mar(omniscient=True) needs the columns that the server's filter looks at, but "
                    "`View.server_columns` is None. Pass these columns, or use Mar(omniscient=False)."
                )
            # A column that occurs twice counts twice in the fit, as it does in the filter.
            return np.asarray(view.server_columns, dtype=np.int64)
        if view.last_layer is None:
            raise InputError(
                "Mar(omniscient=False) attacks the model's last layer, but `View.last_layer` is None. "
                "Pass the slice of its parameters, or use Mar(omniscient=True)."
            )
        return np.arange(d, dtype=np.int64)[view.last_layer]
