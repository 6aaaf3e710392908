"""Aggregators that weigh whole models: the geometric median, centered clipping, and FLTrust."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flanders.aggregators.aggregator import Aggregator, check_products, check_root
from flanders.arrays import Array, copied, rounding_of
from flanders.checks import check_number
from flanders.linalg.geometric_median import geometric_median
from flanders.linalg.products import clipped_steps, combine, gram, move, projections, squared_norms
from flanders.linalg.weiszfeld import weiszfeld
from flanders.round import Round

FEW = 10
"""`GeometricMedian` takes exactly `iterations` steps if this parameter is at most FEW. The RFA paper takes few
steps, so a small number means the method of the paper. A larger `iterations` is only a limit: the search usually
ends earlier."""


@dataclass(frozen=True)
class GeometricMedian(Aggregator):
    r"""Take the point with the smallest sum of distances to all models (RFA).

    The result minimises :math:`F(z) = \sum_c n_c \|\theta_c - z\|`, where :math:`\theta_c` is the model of client
    c, and the weights :math:`n_c` add up to 1. The result is robust if fewer than half of the clients are
    malicious.

    The search moves a point z. A Weiszfeld step moves z to a weighted average of the models, in which models near z
    count more. If Weiszfeld steps converge slowly, the search takes Newton steps as well. The search ends when F(z)
    exceeds the minimum of F by at most `tolerance` times the median distance of the models to z. The module
    `flanders.linalg.geometric_median` explains how the search knows this. If a client's model minimises F, the
    result is exactly this model. If all models lie on a line, all points of an interval may minimise F. The result
    is then the middle of the interval.

    Parameters
    ----------
    iterations
        The largest number of steps. If it is at most 10, the method is that of the RFA paper: z starts at the
        global model, and exactly this number of Weiszfeld steps is taken. Each step is
        :math:`z \leftarrow \sum_c \beta_c \theta_c`. The :math:`\beta_c` add up to 1, and are proportional to
        :math:`n_c / \max(\nu, \|\theta_c - z\|)`. `smoothing` explains :math:`\nu`.
    tolerance
        How precise the result must be before the search ends; see above. Not used with at most 10 iterations.
    smoothing
        In F, a distance below :math:`\nu` is replaced by a smooth function of the distance. :math:`\nu` is
        `smoothing` times the median distance of the models to z. With more than 10 iterations, the distances to the
        geometric median are used instead. Default: no smoothing.
    weighted
        Whether the :math:`n_c` are the clients' weights or all the same. Default: all the same.

    Examples
    --------
    >>> GeometricMedian()(np.array([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.]]))
    array([4., 5., 6.])

    References
    ----------
    Pillutla et al., "Robust aggregation for federated learning", IEEE TSP 2022 (with smoothing and few steps).
    """

    iterations: int = 1000
    tolerance: float = 1e-14
    smoothing: float = 0.0
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("GeometricMedian", "iterations", self.iterations, 1, whole=True)
        check_number("GeometricMedian", "tolerance", self.tolerance, 0)
        check_number("GeometricMedian", "smoothing", self.smoothing, 0)

    @property
    def checks_products(self) -> bool:
        """Whether the search uses the inner products of all rows, which are checked. With few steps it does not."""
        return self.iterations > FEW

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the geometric median."""
        n = round_.weights if self.weighted else np.ones(len(round_.clients))
        w = n / n.sum()
        if self.iterations <= FEW:
            return weiszfeld(round_.updates, round_.global_model, w, self.iterations, self.smoothing)
        products = gram(round_.updates, round_.global_model)
        check_products(self, round_, products)
        optimum = geometric_median(
            products,
            w,
            rounding=rounding_of(round_.updates),
            tolerance=self.tolerance,
            iterations=self.iterations,
            smoothing=self.smoothing,
        )
        return combine(optimum.coefficients, round_.updates)


@dataclass(frozen=True)
class CenteredClipping(Aggregator):
    r"""Shorten each displacement from the global model to at most `radius`. Add their average to the global model.

    .. math:: v \leftarrow v + \sum_c p_c (\theta_c - v) \min(1, \tau / \|\theta_c - v\|)

    Here v starts at the global model, and the step is repeated. :math:`\theta_c` is the model of client c. Its
    displacement is :math:`\theta_c - v`. The :math:`p_c` are weights that add up to 1.

    Parameters
    ----------
    radius
        The largest length :math:`\tau` of a displacement. Default: the median distance of the models to the global
        model.
    iterations
        How many times the step of the formula is taken.
    weighted
        Whether the :math:`p_c` are the clients' weights or all the same. Default: all the same.

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
        check_number("CenteredClipping", "radius", self.radius, 0, optional=True)

    @property
    def shows_bad_rows(self) -> bool:
        """True: a row with NaN or infinity makes the sum not finite."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model after the clipped steps."""
        n = round_.weights if self.weighted else np.ones(len(round_.clients))
        return clipped_steps(round_.updates, round_.global_model, n / n.sum(), self.radius, self.iterations)


@dataclass(frozen=True)
class FLTrust(Aggregator):
    r"""Weigh each client by how well its update agrees with the server's own update.

    An update here is a trained model minus the global model. The server has an update of its own, :math:`u_0`
    (`Round.root`), which it has trained on its own data. The trust in client c with the update :math:`u_c` is
    :math:`t_c = \max(0, \cos(u_c, u_0))`. Each update is scaled to the length of :math:`u_0`. Then the average of
    the updates, weighted by trust, is added to the global model. If the trust in all clients is zero, the global
    model stays as it is. FLTrust works with any number of malicious clients, if the server's data are like those of
    the clients.

    Examples
    --------
    >>> root = np.array([1.0, 0.0])
    >>> round_ = Round(np.array([[2.0, 0.0], [0.0, 3.0], [-9.0, 0.0]]), global_model=np.zeros(2), root=root)
    >>> FLTrust().aggregate(round_, np.random.default_rng(0))  # only the first client agrees with `root`
    array([1., 0.])

    References
    ----------
    Cao et al., "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021.
    """

    @property
    def needs_root(self) -> bool:
        """True: clients are compared with the server's own update."""
        return True

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model plus the average of the updates, weighted by trust."""
        check_root("FLTrust", round_)
        g = round_.global_model
        root_square = squared_norms(round_.root[None, :])[0]
        squares = squared_norms(round_.updates, g)
        products = projections(round_.updates, round_.root[None, :], g)[:, 0]
        scale = np.sqrt(squares) * np.sqrt(root_square)
        trust = np.maximum(0.0, np.divide(products, scale, out=np.zeros_like(scale), where=scale > 0))
        if trust.sum() == 0:
            return copied(g)
        factors = np.sqrt(np.divide(root_square, squares, out=np.zeros_like(squares), where=squares > 0))
        return move(g, trust / trust.sum() * factors, round_.updates)
