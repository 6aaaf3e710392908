"""The base class of filters without a memory."""

from __future__ import annotations

import numpy as np

from flanders.arrays import Array, IntVector
from flanders.filters.filter import Filter, Scores
from flanders.round import Round


class Stateless(Filter[None]):
    """A filter that remembers nothing of earlier rounds. A subclass defines only `score` and `select`."""

    def init(self, rng: np.random.Generator | None = None) -> None:
        """Return None: there is no state."""

    def amend(
        self, state: None, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> None:
        """Return None: there is no state."""
