"""FLANDERS as the paper's published code computes it, for matching its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flanders.arrays import Array, FloatVector, IntVector, to_numpy
from flanders.filters.forecast.history import Snapshot, replace_rows
from flanders.filters.forecast.memory import FlandersState
from flanders.filters.forecast.reduction import take_columns
from flanders.linalg import mar
from flanders.round import Round


@dataclass(frozen=True)
class Reference:
    """The published code's forecast, distance and memory on a fixed sample of parameters."""

    sample: int
    iterations: int
    window: int = 1

    def columns(self, state: FlandersState, d: int) -> IntVector:
        """Return the parameters looked at: drawn once a run, with replacement."""
        return np.random.default_rng([state.seed, 0]).integers(0, d, size=self.sample)

    def distances(self, state: FlandersState, round_: Round) -> tuple[FloatVector, Any]:
        """Return the L2 distance of each model to the forecast; of new clients to the global model."""
        columns, newest = self.columns(state, round_.updates.shape[1]), state.snapshots[-1]
        sent = np.asarray(to_numpy(take_columns(round_.updates, columns)), dtype=np.float64)
        rows = np.asarray(to_numpy(newest.rows), dtype=np.float64)
        rng = np.random.default_rng([state.seed, 1, state.round_number])
        start = rng.standard_normal((self.sample, self.sample))
        predicted = mar.reference_forecast(rows, start, iterations=self.iterations)
        g = np.asarray(to_numpy(take_columns(round_.global_model[None, :], columns))[0], dtype=np.float64)
        place = {c: i for i, c in enumerate(newest.clients)}
        forecast = np.stack([predicted[place[c]] if c in place else g for c in round_.clients])
        return np.asarray(np.linalg.norm(sent - forecast, axis=1)), None

    def remember(
        self, state: FlandersState, round_: Round, kept: IntVector, model: Array, computed: Any
    ) -> FlandersState:
        """Return the memory: the sampled round, with the new global model in place of dropped clients' models."""
        columns = self.columns(state, round_.updates.shape[1])
        rejected = np.setdiff1d(np.arange(len(round_.clients)), kept)
        new = take_columns(model[None, :], columns)[0, :]
        rows = replace_rows(take_columns(round_.updates, columns), rejected, [new] * len(rejected))
        return replace(state, snapshots=(Snapshot(round_.clients, rows, new),))
