"""The aggregator `DnC` (divide and conquer). It averages the models that are not outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, mean_of
from flanders.arrays import Array, copied
from flanders.linalg.spectral import DivideAndConquer
from flanders.round import Round


@dataclass(frozen=True)
class DnC(Aggregator):
    r"""Run several tests for outliers, and average the models that pass all of them (divide and conquer).

    .. math:: g = \frac{1}{|K|} \sum_{c \in K} \theta_c, \quad
              K = \{c : \langle \theta_c^{(k)} - \mu^{(k)}, v^{(k)} \rangle^2 \le \text{cut}^{(k)}
              \text{ in every test } k\}

    Each test k looks at some random parameters only. :math:`\theta_c^{(k)}` has these parameters of the model of
    client c. :math:`\mu^{(k)}` is the mean of these vectors, and :math:`v^{(k)}` is the direction in which they
    vary most. The test drops the clients whose squared projections on this direction are above a cut. The cut is
    set such that the test drops a fixed number of clients (see `filtering_fraction`).

    Parameters
    ----------
    num_malicious
        The number b of malicious clients. A float is their share of the round, rounded up to whole clients.
    iterations
        The number of tests.
    sample
        The number of random parameters in a test. With None, a single test looks at all parameters.
    filtering_fraction
        Each test drops `filtering_fraction` times b clients, rounded down to whole clients.
    weighted
        Whether clients count by their weights in the average, or all the same. Default: all the same.

    Examples
    --------
    >>> DnC(num_malicious=1, sample=None)(np.array([[1., 0.], [1.2, 0.], [0.8, 0.], [9., 0.]]))
    array([1., 0.])

    References
    ----------
    Shejwalkar and Houmansadr, "Manipulating the Byzantine", NDSS 2021.
    """

    num_malicious: float = 0.2
    iterations: int = 5
    sample: int | None = 500
    filtering_fraction: float = 1.0
    weighted: bool = False

    def __post_init__(self) -> None:
        self._tests()

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the mean of the models that are left, or the global model if none is left."""
        kept = np.flatnonzero(self._tests().scores(round_, rng) <= 1.0)
        return mean_of(round_, kept, weighted=self.weighted) if kept.size else copied(round_.global_model)

    def _tests(self) -> DivideAndConquer:
        return DivideAndConquer("DnC", self.num_malicious, self.iterations, self.sample, self.filtering_fraction)
