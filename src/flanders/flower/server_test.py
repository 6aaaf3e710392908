"""The class `ServerTest`: lets a filter compute the losses of any model with the user's `evaluate_fn`.

Flower users pass `evaluate_fn` to `Strategy.start`. It tests the global model on data that the server holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from logging import ERROR, WARNING

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.common.logger import log

from flanders.arrays import Array, FloatVector
from flanders.flower.model_arrays import ModelArrays
from flanders.hosts.model_arrays import Vector
from flanders.round import Evaluate

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
"""A function that takes the number of a round and a model, and returns metrics of the model."""


class ServerTest:
    """Calls the `evaluate_fn` of a federation, for Flower and for the filter.

    A filter uses the losses to find out which of two groups of clients improves the model. That works if
    `evaluate_fn` returns a metric whose name contains `loss`. This metric is one number, or a list with one loss
    for each example.

    Parameters
    ----------
    evaluate_fn
        The user's function; None if there is none.
    done
        The number of rounds that were done in earlier calls of `start`.
    tell
        A function that is called with the metrics of the global model after each round.
    """

    def __init__(
        self,
        evaluate_fn: EvaluateFn | None = None,
        done: int = 0,
        tell: Callable[[MetricRecord | None], None] | None = None,
    ) -> None:
        self._evaluate_fn, self._done, self._tell = evaluate_fn, done, tell
        self._has_losses = False
        self._has_worked = done > 0

    def __call__(self, number: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Test the global model, return the metrics, and remember whether they hold a loss.

        If `evaluate_fn` fails on the first model of all, its error is raised. On later models clients may be the
        reason. Then the error is logged, and there are no metrics.
        """
        if self._evaluate_fn is None:
            return None
        try:
            metrics = self._evaluate_fn(number + self._done, arrays)
        except Exception as error:  # the test is the user's own code and may raise anything
            if not self._has_worked:
                raise
            text = "flanders: evaluate_fn failed on the global model after round %s: there are no metrics of it"
            log(ERROR, text, number + self._done, exc_info=error)
            return None
        self._has_worked = True
        self._has_losses = losses_in(metrics) is not None
        if number > 0 and self._tell is not None:
            self._tell(metrics)
        return metrics

    def of_models(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Evaluate | None:
        """Return a function that takes a flat model and returns its losses.

        Return None if the last test of the global model gave no loss. A flat model is one vector with the arrays
        that the filter looks at. All other arrays, such as buffers, are taken from the global model `arrays`. If
        `evaluate_fn` fails on a model, the loss of this model is infinite. So no client can end the run with a
        model on which `evaluate_fn` fails.
        """
        evaluate_fn = self._evaluate_fn
        if evaluate_fn is None or not self._has_losses:
            return None

        def evaluate(vector: Array) -> FloatVector | float:
            try:
                losses = losses_in(evaluate_fn(number, model.unflatten(np.asarray(vector), arrays)))
            except Exception as error:  # the test is the user's own code and may raise anything
                log(WARNING, "flanders: evaluate_fn failed on an average of some replies (%s)", error)
                return math.inf
            return math.inf if losses is None else losses

        return evaluate

    def step(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Vector | None:
        """Return the server's own step: a model that it has trained, minus the global model.

        Here the server trains nothing, so the result is None. A subclass may train a model on the server's data.
        """
        return None


def losses_in(metrics: MetricRecord | None) -> FloatVector | None:
    """Return the first metric whose name contains `loss`, as a vector; None if there is no such metric.

    Examples
    --------
    >>> losses_in(MetricRecord({"accuracy": 0.5, "eval_loss": 1.25}))
    array([1.25])
    """
    for name, value in (metrics or {}).items():
        if "loss" in name.lower():
            return np.atleast_1d(np.asarray(value, dtype=np.float64))
    return None
