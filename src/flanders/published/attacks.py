"""LIE, OPT and AGR-MM as the code published with the FLANDERS paper computes them, to repeat the paper's numbers.

To judge a defence, use `flanders.attacks` instead. There, each attack follows the paper that introduced it, and is
much harder to detect. The attack Gauss is not here, since the published code computes it in the same way as
`flanders.attacks`.

In the formulas, m is the number of clients of a round, and b of them are malicious. All malicious clients send the
same model x. The models of the other clients are called benign. mu and sigma are the mean and the standard
deviation of each parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies
from flanders.checks import InputError, check_number
from flanders.linalg.columns import column_moments
from flanders.linalg.line import Line
from flanders.linalg.neighbours import krum_scores, multi_krum_rows
from flanders.linalg.products import squared_distances, squared_norms


@dataclass(frozen=True)
class LieReference(Attack):
    r"""LIE as the FLANDERS paper's code computes it: with the square root of sigma, and with a probability as z.

    .. math:: x = \mu - z \sqrt{\sigma}, \quad z = \Phi\left(\frac{m - b - s}{m - b}\right), \quad
              s = \lfloor m/2 + 1 \rfloor - b

    The mean and the standard deviation are taken over all models that the attacker knows, also the models that its
    own clients have honestly trained. :math:`\Phi` is the cumulative distribution function of the standard normal
    distribution. The authors of LIE use the inverse of this function. s is the number of benign clients that the
    malicious clients need for a majority. For b = m, z is set to 1.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> LieReference()(view).round(2)
    array([[0.83, 0.91]])

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning
    attacks via multidimensional time series anomaly detection".
    """

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the shifted mean."""
        offset, sigma = column_moments(view.everyone, view.global_model)
        root = array_api_compat.array_namespace(sigma).sqrt(sigma)
        z = reference_z(view.num_clients, view.num_malicious)
        return copies(view.global_model + offset - z * root, view.num_malicious)


def reference_z(num_clients: int, num_malicious: int) -> float:
    """Return the z of the published code.

    Examples
    --------
    >>> [round(reference_z(100, b), 3) for b in (20, 60, 80)]
    [0.73, 0.89, 0.993]
    """
    m, b = num_clients, num_malicious
    s = math.floor(m / 2 + 1) - b
    return NormalDist().cdf((m - b - s) / (m - b)) if b < m else 1.0


@dataclass(frozen=True)
class OptReference(Attack):
    r"""OPT as the FLANDERS paper's code computes it: an old model, moved against the signs of its own parameters.

    .. math:: x = w - \lambda \operatorname{sign}(w)

    w is the model of the first benign client in the first round that the attacker saw. In all later rounds, w stays
    the same. Lambda starts at

    .. math:: \min\left(999,\; \frac{\min_i K_i}{(m - 2)(c - 1)\sqrt{L}} +
              \frac{\max_i \left(\sum_l \|x_i^{(l)} - w^{(l)}\|\right)^2}{\sqrt{L}}\right),
              \quad c = \max(b, 2)

    The :math:`x_i` are the benign models. A model has L tensors, and :math:`x_i^{(l)}` is tensor l of :math:`x_i`.
    :math:`K_i` is the Krum score of :math:`x_i` among all models before the attack. Krum is told that c models are
    malicious. Lambda is halved until Krum selects a malicious model, or until lambda <= `tau`.

    Parameters
    ----------
    tau
        The halving stops once lambda is at most `tau`.
    num_tensors
        The number L of weight and bias tensors. Default: the length of `layer_sizes`, or 1 if there are no
        `layer_sizes`.
    layer_sizes
        The number of parameters of each tensor, in the order of the flattened model. By default, the sum over l
        treats the model as one tensor.
    stale
        If true, w is the old model. If false, w is the global model of the round. Use both to see how much of the
        effect is due to the old model.

    Examples
    --------
    >>> honest = 1 + 0.5 * np.random.default_rng(0).normal(size=(4, 2))
    >>> view = View(own=np.ones((3, 2)), global_model=np.zeros(2), num_clients=7, benign=honest)
    >>> OptReference()(view).round(2)
    array([[0.42, 0.29],
           [0.42, 0.29],
           [0.42, 0.29]])

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning
    attacks via multidimensional time series anomaly detection".
    """

    tau: float = 1e-5
    num_tensors: int | None = None
    layer_sizes: tuple[int, ...] | None = None
    stale: bool = True

    def __post_init__(self) -> None:
        check_number("OptReference", "tau", self.tau, 0)
        check_number("OptReference", "num_tensors", self.num_tensors, 1, whole=True, optional=True)
        if self.layer_sizes is None:
            return
        object.__setattr__(self, "layer_sizes", tuple(self.layer_sizes))
        for size in self.layer_sizes:
            check_number("OptReference", "layer_sizes", size, 1, whole=True)
        if self.num_tensors not in (None, len(self.layer_sizes)):
            raise InputError(
                f"OptReference(num_tensors={self.num_tensors}) got {len(self.layer_sizes)} `layer_sizes`. "
                "Leave `num_tensors` out, or make both numbers equal."
            )

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of w, moved against its own signs."""
        w = view.honest[0, :] if view.memory is None else view.memory
        if not self.stale:
            w = view.global_model
        signs = array_api_compat.array_namespace(w).sign(w)
        num_honest, b = view.honest.shape[0], view.num_malicious
        c = max(b, 2)
        line = Line.measure(view.honest, w, -signs)
        lambda_ = self._start(view, w, c)
        while lambda_ > self.tau and multi_krum_rows(line.with_copies(lambda_, b), c, 1)[0] < num_honest:
            lambda_ /= 2
        return copies(w - lambda_ * signs, b)

    def remember(self, view: View, sent: Array) -> Array:
        """Remember the first benign model of the first round that the attacker saw."""
        return copied(view.honest[0, :]) if view.memory is None else view.memory

    def _start(self, view: View, w: Array, c: int) -> float:
        honest, everyone, m = view.honest, view.everyone, view.num_clients
        tensors = self.num_tensors or len(self.layer_sizes or (1,))
        scores = krum_scores(squared_distances(everyone, view.global_model), c)[-honest.shape[0] :]
        nearest = float(scores.min()) if everyone.shape[0] > 1 else 0.0
        lengths = sum(np.sqrt(squared_norms(honest[:, p], w[p])) for p in self._pieces(w.shape[0]))
        bound = nearest / (max(1, m - 2) * (c - 1)) + float(np.max(lengths)) ** 2
        return min(999.0, bound / math.sqrt(tensors))

    def _pieces(self, d: int) -> list[slice]:
        sizes = (d,) if self.layer_sizes is None else self.layer_sizes
        if sum(sizes) != d:
            raise InputError(
                f"OptReference(layer_sizes=...) describes a model of {sum(sizes)} parameters, but the "
                f"models have {d}. Pass the sizes of all tensors of the flattened model, in order."
            )
        ends = np.cumsum(sizes)
        return [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]


@dataclass(frozen=True)
class AgrMinMaxReference(Attack):
    r"""AGR-MM as the FLANDERS paper's code computes it: a search that usually fails and ends with gamma = 6.

    .. math:: x = \mu - \gamma \sigma

    The mean and the standard deviation are taken over all models that the attacker knows. The search starts at
    gamma = 5 with a step of 2.5. A value of gamma passes if the largest distance from x to a benign model is
    smaller than the largest distance between two benign models. The next gamma is larger by half of the step if
    this gamma passes, and smaller by half of the step if it does not. Then the step is halved. The result is the
    last gamma that passed, or 6 if none passed. On trained models, none passes.

    Parameters
    ----------
    gamma_init
        The first gamma of the search. If no gamma passes, the result is `gamma_init + 1`.
    tau
        The search ends once its step is at most `tau`. It also ends once gamma differs by at most `tau` from the
        last gamma that passed.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> AgrMinMaxReference()(view).round(2)
    array([[-5.21, -3.7 ]])

    References
    ----------
    The code published with Gabrielli et al., "Protecting federated learning from extreme model poisoning
    attacks via multidimensional time series anomaly detection".
    """

    gamma_init: float = 5.0
    tau: float = 1e-5

    def __post_init__(self) -> None:
        check_number("AgrMinMaxReference", "gamma_init", self.gamma_init, 0)
        check_number("AgrMinMaxReference", "tau", self.tau, 0)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the shifted mean."""
        offset, sigma = column_moments(view.everyone, view.global_model)
        mu = view.global_model + offset
        line = Line.measure(view.honest, mu, -sigma)
        return copies(mu - self._gamma(line) * sigma, view.num_malicious)

    def _gamma(self, line: Line) -> float:
        farthest = float(line.between.max())
        last_passed, gamma, step = self.gamma_init + 1, self.gamma_init, self.gamma_init / 2
        while abs(last_passed - gamma) > self.tau and step > self.tau:
            if float(line.to_rows(gamma).max()) < farthest:
                last_passed, gamma = gamma, gamma + step / 2
            else:
                gamma -= step / 2
            step /= 2
        return last_passed
