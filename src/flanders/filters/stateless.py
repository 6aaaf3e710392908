"""The base of filters that remember nothing."""

from __future__ import annotations

import numpy as np

from flanders.arrays import Array, IntVector
from flanders.filters.filter import Filter, Scores
from flanders.round import Round


class Stateless(Filter[None]):
    """A filter that judges each round by itself: only `score` and `select` are left to write."""

    def init(self, rng: np.random.Generator | None = None) -> None:
        """Return the state, of which there is none."""

    def amend(
        self, state: None, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> None:
        """Remember nothing."""
