"""The wrapped strategy's own aggregation of whoever is kept, in the form that `flanders.defend` asks for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from logging import ERROR

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from flanders.arrays import IntVector
from flanders.flower.held import settled
from flanders.flower.plan import Plan
from flanders.flower.views import RoundView

STAYS = "the global model stays"


class Aggregation:
    """Turns rows of the round into the new global model, as the filter sees it.

    Whatever goes wrong in the strategy, the round ends: `arrays` is None then, and `note` says why.

    Parameters
    ----------
    number
        The round.
    messages
        The replies, one a row.
    before
        What the filter sees of the global model that the round started from.
    """

    def __init__(
        self, number: int, messages: Sequence[Message], plan: Plan, view: RoundView, before: NDArray[np.floating]
    ) -> None:
        self.number, self.messages, self.plan, self.view, self.before = number, messages, plan, view, before
        self.arrays: ArrayRecord | None = None
        """The new global model."""
        self.metrics: MetricRecord | None = None
        self.used: Strategy | None = None
        """Who aggregated, or tried to."""
        self.note = ""
        self.error: Exception | None = None
        self.seconds = 0.0

    def by(self, strategy: Strategy, kept: IntVector) -> NDArray[np.floating]:
        """Let a strategy aggregate these rows' replies."""
        start, self.used = time.perf_counter(), strategy
        try:
            arrays, self.metrics = strategy.aggregate_train(self.number, [self.messages[row] for row in kept])
            return self._seen(arrays)
        except Exception as error:  # what the strategy makes of replies is not in our hands
            self.error = error
            log(ERROR, "flanders: %s failed", type(strategy).__name__, exc_info=error)
            return self._stay(f"{type(strategy).__name__} failed ({type(error).__name__}: {error})")
        finally:
            self.seconds += time.perf_counter() - start

    def _seen(self, arrays: ArrayRecord | None) -> NDArray[np.floating]:
        if not arrays:
            return self._stay("the strategy returned no model")
        if difference := self.plan.difference(arrays):
            return self._stay(f"the strategy returned a model with other arrays ({difference})")
        model = self.view.of_model(arrays)
        if not np.isfinite(model).all() or not self.plan.rest_is_finite(arrays):
            return self._stay("the aggregate was not finite")
        for name in self.plan.names:  # some strategies return a reply's own arrays
            arrays[name] = settled(arrays[name])
        self.arrays = arrays
        return model

    def _stay(self, why: str) -> NDArray[np.floating]:
        self.note = f"{why}: {STAYS}"
        return self.before
