"""The wrapped strategy's own aggregation of the kept replies, in the form that `Defense.step` asks for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from logging import ERROR

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from flanders.arrays import IntVector
from flanders.flower.round_matrix import RoundMatrix
from flanders.flower.stored_arrays import in_memory
from flanders.hosts.model_arrays import ModelArrays, Vector

STAYS = "the global model stays"


class StrategyAggregation:
    """Lets a strategy aggregate rows of a round.

    The round ends even if the strategy fails: `arrays` is then None, and `note` says why.

    Parameters
    ----------
    number
        The number of the round.
    messages
        The replies, one for each row.
    model
        The arrays of the global model.
    matrix
        What the filter sees of the replies.
    before
        What the filter sees of the global model that the round started from.
    """

    def __init__(
        self, number: int, messages: Sequence[Message], model: ModelArrays, matrix: RoundMatrix, before: Vector
    ) -> None:
        self.number, self.messages, self.model, self.matrix, self.before = number, messages, model, matrix, before
        self.arrays: ArrayRecord | None = None
        """The new global model."""
        self.metrics: MetricRecord | None = None
        self.used: Strategy | None = None
        """The strategy that aggregated, or failed to."""
        self.note = ""
        self.error: Exception | None = None
        self.seconds = 0.0

    def by(self, strategy: Strategy, kept: IntVector) -> Vector:
        """Let a strategy aggregate the replies of these rows, and return what the filter sees of the result."""
        start, self.used = time.perf_counter(), strategy
        try:
            arrays, self.metrics = strategy.aggregate_train(self.number, [self.messages[row] for row in kept])
            return self._checked(arrays)
        except Exception as error:  # a strategy is the user's own code, so that any error is possible
            self.error = error
            log(ERROR, "flanders: %s failed", type(strategy).__name__, exc_info=error)
            return self._stay(f"{type(strategy).__name__} failed ({type(error).__name__}: {error})")
        finally:
            self.seconds += time.perf_counter() - start

    def _checked(self, arrays: ArrayRecord | None) -> Vector:
        if not arrays:
            return self._stay("the strategy returned no model")
        if difference := self.model.difference(arrays):
            return self._stay(f"the strategy returned a model with other arrays ({difference})")
        row = self.matrix.row_of(arrays)
        if not np.isfinite(row).all() or not self.model.unscored_are_finite(arrays):
            return self._stay("the aggregate was not finite")
        for name in self.model.names:  # some strategies return an array of a reply itself
            arrays[name] = in_memory(arrays[name])
        self.arrays = arrays
        return row

    def _stay(self, why: str) -> Vector:
        self.note = f"{why}: {STAYS}"
        return self.before
