"""Divide and conquer as a filter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.arrays import Array, IntVector
from flanders.filters.filter import Filter, Scores, check_keep, check_state, draw_seed, lowest
from flanders.linalg.spectral import DivideAndConquer
from flanders.round import Round
from flanders.state import saveable


@saveable
@dataclass(frozen=True)
class DnCState:
    """The secret seed of the samples, and the number of rounds so far."""

    seed: int
    round_number: int = 0


@dataclass(frozen=True)
class DnCFilter(Filter[DnCState]):
    r"""Drop the clients that stand out along the main direction of spread (divide and conquer).

    .. math:: \text{score}_c = \max_k \langle \theta_c^{(k)} - \mu^{(k)}, v^{(k)} \rangle^2 / \text{cut}^{(k)}

    In test k, mu is the mean of the models on the sampled parameters, and v is the direction in which they spread
    most. Each of `iterations` tests looks at `sample` random parameters (None: at all of them, once). It flags the
    `filtering_fraction * b` clients that are farthest along the direction in which these parameters spread most. A
    client is kept if no test flags it. With `keep`, the clients with the lowest scores are kept instead. A score
    above 1 means flagged.

    Examples
    --------
    >>> from flanders import Defense
    >>> models = np.random.default_rng(0).normal(size=(10, 50))
    >>> models[:2] += 5
    >>> Defense(DnCFilter(num_malicious=2), seed=0)(models).dropped
    (0, 1)

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    num_malicious: float = 0.2
    keep: float | None = None
    iterations: int = 5
    sample: int | None = 500
    filtering_fraction: float = 1.0

    def __post_init__(self) -> None:
        check_keep("DnCFilter", self.keep)
        self._tests()

    def init(self, rng: np.random.Generator | None = None) -> DnCState:
        """Return the secret seed."""
        return DnCState(draw_seed(rng))

    def score(self, state: DnCState, round_: Round) -> Scores | None:
        """Score each client by its largest projection in any test, relative to the cut."""
        check_state("DnCFilter", state, DnCState)
        values = self._tests().scores(round_, np.random.default_rng([state.seed, state.round_number]))
        return Scores(round_.clients, values, suspects=values > 1.0)

    def select(self, scores: Scores) -> IntVector:
        """Keep the clients that no test flags, or the `keep` lowest scores."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        return np.flatnonzero(scores.values <= 1.0)

    def amend(
        self, state: DnCState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> DnCState:
        """Count the round, so that the next one draws other parameters."""
        check_state("DnCFilter", state, DnCState)
        return DnCState(state.seed, state.round_number + 1)

    def _tests(self) -> DivideAndConquer:
        return DivideAndConquer(
            "DnCFilter", self.num_malicious, self.iterations, self.sample, self.filtering_fraction
        )
