"""FLANDERS by the paper's equations: forecast the round from the last ones, measure the distance, remember."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector
from flanders.filters.forecast.history import Layout, amended, products
from flanders.filters.forecast.look import View
from flanders.filters.forecast.memory import FlandersState
from flanders.filters.forecast.refitting import KeptFit, fit_history, kept_distances
from flanders.filters.forecast.scoring import Forecaster, score
from flanders.round import Round


@dataclass(frozen=True)
class Paper:
    """The settings of the paper's filter; see `Flanders`."""

    forecaster: Forecaster
    view: View
    window: int
    distance: str | float
    amend_with: str
    refit_every: int

    def columns(self, state: FlandersState, d: int) -> IntVector | None:
        """Return the parameters looked at in every round, if they are fixed and not all."""
        return self.view.columns(state, d)

    def distances(self, state: FlandersState, round_: Round) -> tuple[FloatVector, Any]:
        """Return how far each client's model is from its forecast, and what was computed for it."""
        if self.view.secret:
            secrets = self.view.secrets(state, Layout(state.snapshots, round_))
            return np.max([self._from_products(layout, products(layout)) for layout in secrets], axis=0), None
        layout = Layout(state.snapshots, self.view.of_round(state, round_))
        if self.refit_every > 1:
            fit = self._fit(state, layout)
            return kept_distances(layout, fit, self.forecaster, self.distance), fit
        gram = products(layout, state.gram)
        return self._from_products(layout, gram), gram

    def remember(
        self, state: FlandersState, round_: Round, kept: IntVector, model: Array, computed: Any
    ) -> FlandersState:
        """Return the memory with this round in it, dropped clients' models replaced."""
        state = self.view.chosen(state, round_, kept)
        layout = Layout(state.snapshots, self.view.of_round(state, round_))
        newest, places = amended(layout, kept, last_accepted=self.amend_with == "last-accepted")
        forgotten = max(0, len(state.snapshots) + 1 - self.window)
        after = replace(state, snapshots=(*state.snapshots[forgotten:], newest))
        if self.view.secret:
            return after
        if self.refit_every > 1:
            fit = self._fit(state, layout) if computed is None else computed
            full = len(state.snapshots) == self.window
            return replace(after, fit=fit.older() if fit is not None and full else None)
        gram = products(layout, state.gram) if computed is None else computed
        old = np.arange(layout.starts[forgotten], layout.starts[-1])
        index = np.concatenate([old, places, [layout.global_model]])
        return replace(after, gram=gram[np.ix_(index, index)])

    def _from_products(self, layout: Layout, gram: FloatMatrix) -> FloatVector:
        return score(layout, gram, self.forecaster.forecast(layout, gram), self.distance)

    def _fit(self, state: FlandersState, layout: Layout) -> KeptFit | None:
        """Return the fit to forecast with: the one that is kept, or, where it is too old, a new one."""
        if state.fit is not None and state.fit.age < self.refit_every:
            return state.fit
        return fit_history(layout, self.forecaster) if len(layout.snapshots) > self.forecaster.order else None
