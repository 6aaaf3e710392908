"""The server's own test of the global model, as a filter can use it: from a flat model to its losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from logging import WARNING

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.common.logger import log

from flanders.arrays import Array, FloatVector
from flanders.flower.model_arrays import ModelArrays, Vector
from flanders.round import Evaluate

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""What Flower users pass to `Strategy.start`: a test of the global model on the server's data."""


class ServerTest:
    """The `evaluate_fn` of a federation.

    A filter may ask it which of two groups of clients helps the model. It can answer if the metrics of the test
    hold a number whose name contains `loss`. A list of numbers counts as one loss for each example.

    Parameters
    ----------
    evaluate_fn
        The user's test; None if there is none.
    done
        The number of rounds of earlier starts.
    tell
        Is called with the metrics of the global model after each round.
    """

    def __init__(
        self,
        evaluate_fn: EvaluateFn | None = None,
        done: int = 0,
        tell: Callable[[MetricRecord | None], None] | None = None,
    ) -> None:
        self._evaluate_fn, self._done, self._tell = evaluate_fn, done, tell
        self._has_losses = False

    def __call__(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Test the global model, and remember whether the metrics hold losses."""
        if self._evaluate_fn is None:
            return None
        metrics = self._evaluate_fn(number + self._done, arrays)
        self._has_losses = losses_in(metrics) is not None
        if number > 0 and self._tell is not None:
            self._tell(metrics)
        return metrics

    def of_models(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Evaluate | None:
        """Return the function from a flat model to its losses; None if the test has shown none.

        Arrays that are not in the flat model, such as buffers, are those of the global model. A model on which the
        test fails has an infinite loss, so that no client can end the run by what it sends.
        """
        evaluate_fn = self._evaluate_fn
        if evaluate_fn is None or not self._has_losses:
            return None

        def evaluate(vector: Array) -> FloatVector | float:
            try:
                losses = losses_in(evaluate_fn(number, model.unflatten(np.asarray(vector), arrays)))
            except Exception as error:  # the test is the user's own code, so that any error is possible
                log(WARNING, "flanders: evaluate_fn failed on an average of some replies (%s)", error)
                return math.inf
            return math.inf if losses is None else losses

        return evaluate

    def step(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Vector | None:
        """Return a step that the server trained on its own examples. A test trains none."""
        return None


def losses_in(metrics: MetricRecord | None) -> FloatVector | None:
    """Return the first metric whose name contains `loss`, as a vector; None if there is none.

    Examples
    --------
    >>> losses_in(MetricRecord({"accuracy": 0.5, "eval_loss": 1.25}))
    array([1.25])
    """
    for name, value in (metrics or {}).items():
        if "loss" in name.lower():
            return np.atleast_1d(np.asarray(value, dtype=np.float64))
    return None
