"""Aggregators that weigh whole models by their distance to a centre: geometric median, clipping, FLTrust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator
from flanders.arrays import Array, copied
from flanders.checks import InputError, check_number
from flanders.linalg.products import clip_factors, combine, gram, move, projections, squared_norms
from flanders.round import Round


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    r"""Find the point with the smallest sum of distances to all models (RFA).

    Smoothed Weiszfeld steps :math:`z \leftarrow \sum_c \beta_c \theta_c`,
    :math:`\beta_c \propto n_c / \max(\nu, \|\theta_c - z\|)`. Every z is a weighted average of
    the rows, so the steps run on their m x m inner products and the data is read twice in all,
    however many steps there are. `smoothing` is nu relative to the median distance to z, which
    a minority cannot move.
    Holds while malicious clients are fewer than half.

    Examples
    --------
    >>> GeometricMedian()(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]])).round(6)
    array([4., 5., 6.])

    References
    ----------
    Pillutla et al., "Robust aggregation for federated learning", IEEE TSP 2022.
    """

    iterations: int = 1000
    tolerance: float = 1e-9
    smoothing: float = 1e-6
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("GeometricMedian", "iterations", self.iterations, 1, whole=True)
        check_number("GeometricMedian", "tolerance", self.tolerance, 0)
        check_number("GeometricMedian", "smoothing", self.smoothing, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the geometric median."""
        products = gram(round_.updates, round_.global_model)
        norms = np.diagonal(products)
        n = round_.weights / round_.weights.sum() if self.weighted else np.ones_like(norms)
        beta = np.zeros_like(norms)  # the coefficients of z around the global model, where it starts
        for _ in range(self.iterations):
            squared = norms - 2 * products @ beta + beta @ products @ beta
            distances = np.sqrt(np.maximum(squared, 0.0))
            middle = float(np.median(distances))
            pull = n / np.maximum(distances, max(self.smoothing * middle, 1e-150))
            new = pull / pull.sum()
            moved = np.abs(new - beta) @ distances  # z itself moves by no more than this
            beta = new
            if moved <= self.tolerance * middle:
                break
        return combine(beta, round_.updates)


@dataclass(frozen=True)
class CenteredClipping(Aggregator):
    r"""Move the global model by the average displacement, each clipped to length `radius`.

    :math:`v \leftarrow v + \sum_c p_c (\theta_c - v) \min(1, \tau / \|\theta_c - v\|)`, repeated
    `iterations` times from the current global model. `radius=None` takes the median distance
    to v at the start, so that no scale has to be known in advance.

    Examples
    --------
    >>> CenteredClipping(radius=1.0, iterations=1)(np.array([[0.5, 0.], [0., -0.5], [300., 400.]]))
    array([0.36666667, 0.1       ])

    References
    ----------
    Karimireddy et al., "Learning from history for Byzantine robust optimization", ICML 2021.
    """

    radius: float | None = None
    iterations: int = 3
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("CenteredClipping", "iterations", self.iterations, 1, whole=True)
        if self.radius is not None:
            check_number("CenteredClipping", "radius", self.radius, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the clipped step from the global model."""
        products = gram(round_.updates, round_.global_model)  # around g: v = g + sum_c a_c u_c
        norms = np.diagonal(products)
        n = round_.weights if self.weighted else np.ones_like(norms)
        share = n / n.sum()
        a = np.zeros_like(norms)
        tau = self.radius
        for _ in range(self.iterations):
            squared = norms - 2 * products @ a + a @ products @ a
            distances = np.sqrt(np.maximum(squared, 0.0))
            if tau is None:
                tau = float(np.median(distances))
            pull = share * clip_factors(distances, tau)
            a = (1 - pull.sum()) * a + pull
        return move(round_.global_model, a, round_.updates)


@dataclass(frozen=True)
class FLTrust(Aggregator):
    r"""Weigh each client by how far it agrees with the server's own trusted update.

    With the server's displacement :math:`u_0` (`Round.root`): trust
    :math:`t_c = \max(0, \cos(u_c, u_0))`, every displacement rescaled to the length of
    :math:`u_0`, and the trust-weighted average added to the global model. If nobody is trusted,
    the global model stays as it is. Holds for any number of malicious clients, as far as the
    server's data is like the clients'.

    References
    ----------
    Cao et al., "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021.
    """

    @property
    def needs_root(self) -> bool:
        """It weighs clients by the server's own step."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model moved by the trusted average."""
        if round_.root is None:
            raise InputError(
                "FLTrust needs the server's own displacement, and this round carries none. "
                "Train the global model on the server's trusted data and pass `root=trained - global_model`."
            )
        g = round_.global_model
        own = squared_norms(round_.root[None, :])[0]
        norms = squared_norms(round_.updates, g)
        products = projections(round_.updates, round_.root[None, :], g)[:, 0]
        scale = np.sqrt(norms) * np.sqrt(own)
        trust = np.maximum(0.0, np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0))
        if trust.sum() == 0:
            return copied(g)
        a = trust / trust.sum() * np.sqrt(np.divide(own, norms, out=np.zeros_like(norms), where=norms > 0))
        return move(g, a, round_.updates)
