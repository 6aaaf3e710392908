"""The filter `DnCFilter`: the method divide and conquer (DnC), in front of any aggregator."""

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
    """The memory of `DnCFilter`: the secret seed of the samples, and the number of rounds so far."""

    seed: int
    round_number: int = 0


@dataclass(frozen=True)
class DnCFilter(Filter[DnCState]):
    r"""Drop the clients that stand out along the direction in which the models vary most (divide and conquer).

    .. math:: \text{score}_c = \max_k \langle \theta_c^{(k)} - \mu^{(k)}, v^{(k)} \rangle^2 / \text{cut}^{(k)}

    There are several tests. Test k looks at some random parameters. Restricted to these parameters,
    :math:`\theta_c^{(k)}` is the model of client c, :math:`\mu^{(k)}` is the mean of all models, and
    :math:`v^{(k)}` is the direction in which the models vary most. The test flags the clients with the largest
    squared projections on this direction. The cut is a number halfway between the smallest squared projection of a
    flagged client and the largest squared projection of any other client. So a score above 1 means that some test
    flags the client. Clients that no test flags are kept.

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the clients of a round.
    keep
        How many clients to keep: a number, or a fraction of the round. The clients with the lowest scores are kept.
        By default, all clients that no test flags are kept.
    iterations
        The number of tests.
    sample
        The number of random parameters in a test. If it is None, a single test looks at all parameters.
    filtering_fraction
        Each test flags `filtering_fraction` times b clients.

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
        """Return the memory before the first round, with a new secret seed."""
        return DnCState(draw_seed(rng))

    def score(self, state: DnCState, round_: Round) -> Scores | None:
        """Score each client by its squared projection divided by the cut, in the test where this is largest."""
        check_state("DnCFilter", state, DnCState)
        values = self._tests().scores(round_, np.random.default_rng([state.seed, state.round_number]))
        return Scores(round_.clients, values, suspects=values > 1.0)

    def select(self, scores: Scores) -> IntVector:
        """Return the clients that no test flags, or those with the `keep` lowest scores."""
        if self.keep is not None:
            return lowest(scores, self.keep)
        return np.flatnonzero(scores.values <= 1.0)

    def amend(
        self, state: DnCState, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None
    ) -> DnCState:
        """Return the memory with one more round counted, so that the next round draws other parameters."""
        check_state("DnCFilter", state, DnCState)
        return DnCState(state.seed, state.round_number + 1)

    def _tests(self) -> DivideAndConquer:
        return DivideAndConquer(
            "DnCFilter", self.num_malicious, self.iterations, self.sample, self.filtering_fraction
        )
