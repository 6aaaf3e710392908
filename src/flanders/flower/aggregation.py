"""The class `StrategyAggregation`: lets the wrapped strategy aggregate the kept replies of a round.

`FilteredStrategy` lets a `Defense` filter the round. When the defense has chosen the replies to keep, it calls
`StrategyAggregation.by` to get the new model.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from logging import ERROR

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.common.logger import log
from flwr.serverapp.strategy import Strategy

from flanders.arrays import IntVector
from flanders.client_ids import ClientId
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.round_matrix import RoundMatrix
from flanders.flower.round_weights import RoundWeights
from flanders.hosts.model_arrays import Vector
from flanders.record import STAYS


class StrategyAggregation:
    """Lets a strategy aggregate those replies of a round that the filter has kept.

    If the strategy fails, its error is not raised, but stored in `error`. Then `arrays` stays None, and `note` says
    what happened.

    Parameters
    ----------
    number
        The number of the round.
    model
        The description of the global model's arrays.
    matrix
        What the filter sees: a row for each reply. A row has the numbers of a model that the filter looks at, or a
        sketch of them: a short vector that `RoundMatrix` explains.
    before
        The global model that the round started from, in the form of a row of `matrix`.
    weights
        The replies of the round, and how much each of them counts.
    """

    def __init__(
        self, number: int, model: ModelArrays, matrix: RoundMatrix, before: Vector, weights: RoundWeights
    ) -> None:
        self.number, self.model, self.matrix, self.before, self.weights = number, model, matrix, before, weights
        self.messages = [answer.message for answer in weights.answers]
        self.arrays: ArrayRecord | None = None
        """The new global model; None if the global model stays as it is."""
        self.metrics: MetricRecord | None = None
        """The metrics that the strategy returned."""
        self.used: Strategy | None = None
        """The strategy that was called."""
        self.note = ""
        """Why the global model stays as it is; empty if there is a new one."""
        self.error: Exception | None = None
        """The error of the strategy, if it failed."""
        self.seconds = 0.0
        """How long the strategy took."""

    def by(self, strategy: Strategy, kept: IntVector, known: Collection[ClientId] | None = None) -> Vector:
        """Let a strategy aggregate the kept replies, and return the new model in the form of a row of `matrix`.

        `kept` has the positions of the rows whose replies were kept. If there is no usable new model, return
        `before`. `known` are the clients whose own last reply was kept. All other clients are newcomers, and their
        weight is limited. If `known` is None, no weight is limited.
        """
        start, self.used = time.perf_counter(), strategy
        if known is not None and not self.weights.limit_newcomers(kept, known):
            return self._stay("the filter kept only newcomers")
        try:
            self.weights.prepare(kept)
            arrays, self.metrics = strategy.aggregate_train(self.number, [self.messages[row] for row in kept])
            return self._checked(arrays)
        except Exception as error:  # a strategy is the user's own code and may raise anything
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
        converted = self.model.in_own_types(arrays)
        row = None if converted is None else self.matrix.row_of(converted)
        if row is None or not np.isfinite(row).all():
            return self._stay(
                "the aggregate has numbers that are not finite, or too large for the types of the model"
            )
        self.arrays = converted
        return row

    def _stay(self, why: str) -> Vector:
        self.note = f"{why}: {STAYS}"
        return self.before
