"""The class `ServerLosses`: computes losses on the server's examples, and copes with an `evaluate` that fails.

The user's function `evaluate` gets models that depend on what clients have sent. So a client may be the reason if
the function fails. It may not end the training in this way.
"""

from __future__ import annotations

import logging
import math

import numpy as np

from flanders.arrays import Array, FloatVector, copied, to_numpy
from flanders.plain_text import printable
from flanders.round import Round

log = logging.getLogger("flanders")

LONGEST_ERROR = 200
"""The most characters of an error of `evaluate` in a line of the log."""


class BrokenEvaluate(ArithmeticError):
    """`evaluate` does not work at all, so what it returns says nothing about the clients of the round.

    This is an `ArithmeticError`, so that a `Defense` goes on after a round in which a filter raises it.
    """


class ServerLosses:
    """The losses of models on the server's examples, in one round that has a function `evaluate`.

    `evaluate` fails on a model if it raises an error, or returns no finite number. The losses of this model are
    then infinite. `BrokenEvaluate` is raised in two cases. It has not worked for any model of the round, and fails
    on the global model, too. Or it returns different numbers of losses for different models, which cannot be
    compared.
    """

    def __init__(self, round_: Round) -> None:
        self.round_ = round_
        self._size = 0  # how many losses `evaluate` returns; 0 until it has worked

    def of(self, model: Array) -> FloatVector:
        """Return the losses of a model: one for each example, or only one.

        A loss that is not finite counts as infinite.
        """
        try:
            return self._computed(model)
        except BrokenEvaluate:
            raise
        except Exception as error:  # `evaluate` is the user's own code and may raise anything
            if self._size == 0:
                self._try_global_model()
            log.warning("`evaluate` failed on a model (%s): its losses count as infinite", described_error(error))
            return np.full(self._size, math.inf)

    def _computed(self, model: Array) -> FloatVector:
        assert self.round_.evaluate is not None
        result = self.round_.evaluate(model)
        numbers = to_numpy(result) if hasattr(result, "shape") else result
        losses = np.atleast_1d(np.asarray(numbers, dtype=np.float64)).ravel()
        finite = np.isfinite(losses)
        if not finite.any():
            raise ValueError("it returned no finite loss")
        if self._size not in (0, losses.size):
            raise BrokenEvaluate(f"`evaluate` returned {losses.size} losses, and {self._size} for another model")
        self._size = losses.size
        return np.where(finite, losses, math.inf)

    def _try_global_model(self) -> None:
        """Raise `BrokenEvaluate` if `evaluate` fails on the global model."""
        try:
            self._computed(copied(self.round_.global_model))
        except Exception as error:  # see `of`
            raise BrokenEvaluate(f"`evaluate` failed on the global model: {described_error(error)}") from error


def described_error(error: Exception) -> str:
    """Return an error in one short line.

    Examples
    --------
    >>> described_error(ValueError("no such device"))
    'ValueError: no such device'
    """
    return printable(f"{type(error).__name__}: {error}", LONGEST_ERROR)
