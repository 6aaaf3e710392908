"""Aggregators that limit a length and add noise.

`ClippingAndNoise` and `Flame` limit the length of each client's displacement, and `Crfl` that of the averaged
model.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Aggregator
from flanders.arrays import Array, FloatVector, normals_like
from flanders.checks import check_choice, check_number
from flanders.linalg.linkage import majority_heights
from flanders.linalg.products import clip_factors, cosine_distances_between, mean, move, squared_norms
from flanders.round import Round

ANGLES = ("models", "updates")
"""The values that `Flame.angles` may have."""


@dataclass(frozen=True)
class ClippingAndNoise(Aggregator):
    r"""Average the displacements from the global model, each clipped to length `radius`, and add a little noise.

    .. math:: g + \sum_c p_c u_c \min(1, S / \|u_c\|) + \mathcal{N}(0, (\lambda S)^2 I)

    Here g is the global model, :math:`u_c` is the displacement of client c's model from g, and the :math:`p_c` are
    weights that add up to 1. Clipping limits the effect of an update that is multiplied by a large factor. The
    noise is meant to remove what is left of a backdoor. With `noise=0` the method is called norm bounding.

    Parameters
    ----------
    radius
        The largest length S of a displacement. Default: the median length of the displacements of the round.
    noise
        The standard deviation of the noise in each parameter, as a share :math:`\lambda` of S. The default is the
        same as in `Flame`.
    weighted
        Whether clients count by their weights, as in the paper. By default they count equally.

    Examples
    --------
    >>> ClippingAndNoise(radius=5.0, noise=0.0)(np.array([[3., 4.], [30., 40.]]))
    array([3., 4.])

    References
    ----------
    Sun et al., "Can you really backdoor federated learning?", 2019.
    """

    radius: float | None = None
    noise: float = 0.001
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("ClippingAndNoise", "radius", self.radius, 0, optional=True)
        check_number("ClippingAndNoise", "noise", self.noise, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model plus the average of the clipped displacements and noise."""
        lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
        radius = float(np.median(lengths)) if self.radius is None else self.radius
        shares = round_.weights if self.weighted else np.ones_like(lengths)
        coefficients = shares / shares.sum() * clip_factors(lengths, radius)
        return with_noise(move(round_.global_model, coefficients, round_.updates), self.noise * radius, rng)


@dataclass(frozen=True)
class Crfl(Aggregator):
    r"""Average the models, clip the average to length `radius`, and add noise (CRFL without its certificates).

    .. math:: \bar\theta \min(1, \rho / \|\bar\theta\|) + \mathcal{N}(0, \sigma^2 I), \qquad
              \bar\theta = \sum_c p_c \theta_c

    Here :math:`\theta_c` is the model of client c, and the :math:`p_c` are weights that add up to 1. The averaged
    model itself is clipped, not its displacement from the global model. The paper also certifies predictions: many
    noisy copies of the final model vote on each example. This aggregator does not do that. In the paper
    :math:`\rho` grows from round to round up to a limit. Here :math:`\rho` is the same in all rounds.

    Parameters
    ----------
    radius
        The largest length :math:`\rho` of the model. The default is the limit for MNIST in the authors' code.
    noise
        The standard deviation :math:`\sigma` of the noise in each parameter. The default is that of the authors.
    weighted
        Whether clients count by their weights, as in the paper. By default they count equally.

    Examples
    --------
    >>> Crfl(radius=5.0, noise=0.0)(np.array([[30., 30.], [30., 50.]]))
    array([3., 4.])

    References
    ----------
    Xie et al., "CRFL: certifiably robust federated learning against backdoor attacks", ICML 2021.
    """

    radius: float = 15.0
    noise: float = 0.01
    weighted: bool = False

    def __post_init__(self) -> None:
        check_number("Crfl", "radius", self.radius, 0)
        check_number("Crfl", "noise", self.noise, 0)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the clipped average of the models, plus noise."""
        average = mean(round_.updates, round_.weights if self.weighted else None)
        length = np.sqrt(squared_norms(average[None, :]))
        return with_noise(average * float(clip_factors(length, self.radius)[0]), self.noise, rng)


@dataclass(frozen=True)
class Flame(Aggregator):
    r"""Average the clipped displacements of the largest group of models with similar directions, and add noise.

    The method HDBSCAN clusters the models by their cosine distances. A cluster must have more than half of the
    clients, so there is only one cluster. B is the set of the clients in it. Their displacements are averaged:

    .. math:: g + \frac{1}{|B|} \sum_{c \in B} u_c \min(1, S / \|u_c\|) + \mathcal{N}(0, (\lambda S)^2 I).

    Here g is the global model, :math:`u_c` is the displacement of client c's model from g, and S is the median
    length of all displacements. The filter `flame` does only the clustering.

    Parameters
    ----------
    noise
        The standard deviation of the noise in each parameter, as a share :math:`\lambda` of S. The default is that
        of the paper for image classification.
    angles
        The vectors from which the cosines are computed: `"models"`, as in the paper, or `"updates"`, as in many
        implementations. Updates here are the displacements from the global model.

    Examples
    --------
    >>> Flame(noise=0.0)(np.array([[1., 0.], [2., 0.], [1., 0.], [0., 9.]]))
    array([1.16666667, 0.        ])

    References
    ----------
    Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022, Algorithm 1.
    """

    noise: float = 0.001
    angles: str = "models"

    def __post_init__(self) -> None:
        check_number("Flame", "noise", self.noise, 0)
        check_choice("Flame", "angles", self.angles, ANGLES)

    def aggregate(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the global model plus the average of the cluster's clipped displacements and noise."""
        center = None if self.angles == "models" else round_.global_model
        heights = majority_heights(cosine_distances_between(round_.updates, center))
        members: FloatVector = (heights == heights.min()).astype(float)
        lengths = np.sqrt(squared_norms(round_.updates, round_.global_model))
        radius = float(np.median(lengths))
        coefficients = members / members.sum() * clip_factors(lengths, radius)
        return with_noise(move(round_.global_model, coefficients, round_.updates), self.noise * radius, rng)


def with_noise(model: Array, deviation: float, rng: np.random.Generator) -> Array:
    """Return a model with Gaussian noise of this standard deviation in each parameter."""
    if deviation == 0:
        return model
    xp = array_api_compat.array_namespace(model)
    return xp.astype(model + deviation * normals_like(model, rng), model.dtype, copy=False)
