"""FoolsGold: clients that keep sending similar updates count less."""

from __future__ import annotations

from dataclasses import dataclass, field

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Remembering, recalled
from flanders.arrays import Array, FloatMatrix, FloatVector, copied
from flanders.checks import check_choice, check_number
from flanders.linalg.products import cosines_of_gram, gram, move
from flanders.round import ClientId, Round, last_layer_of
from flanders.state import saveable

PLACES = ("last-layer", "all")
TINY = 1e-5
"""What the authors' code adds to the largest cosines and to the odds, so that it divides by no zero."""


@saveable
@dataclass(frozen=True, eq=False)
class FoolsGoldMemory:
    """The sum of the displacements that each client has sent, in the parameters that are compared."""

    sums: dict[ClientId, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class FoolsGold(Remembering):
    r"""Weigh each client by how different its updates are, over all rounds, from those of every other client.

    Sybils with one goal send similar updates, and honest clients with different data do not. With the cosines
    :math:`s_{ij}` between the sums of the clients' displacements and :math:`v_i = \max_j s_{ij}`, an honest client
    is pardoned for its likeness to a sybil: :math:`s_{ij}` is multiplied by :math:`v_i / v_j` where
    :math:`v_j > v_i`. Then

    .. math:: \alpha_i = 1 - \max_j s_{ij}, \qquad \alpha \leftarrow \frac{\alpha}{\max \alpha}, \qquad
              w_i = \kappa \left( \ln \frac{\alpha_i}{1 - \alpha_i} + \frac12 \right) \text{ clipped to } [0, 1].

    The result is the global model moved by the average displacement with these weights. The paper adds up weighted
    gradients and leaves the length of the step to the learning rate. Here the weights are divided by their sum,
    since clients send whole displacements. If all weights are zero, the global model stays.

    Parameters
    ----------
    confidence
        The factor kappa.
    where
        The parameters whose cosines count: `"last-layer"`, where the paper finds the features that tell a goal, or
        `"all"`. A round that does not name its layers is compared in all parameters.

    Examples
    --------
    >>> FoolsGold()(np.array([[1., 0.], [0., 1.], [-5., -5.], [-5., -5.]]))
    array([0.5, 0.5])

    References
    ----------
    Fung, Yoon and Beschastnikh, "The limitations of federated learning in sybil settings", RAID 2020.
    """

    confidence: float = 1.0
    where: str = "last-layer"

    def __post_init__(self) -> None:
        check_number("FoolsGold", "confidence", self.confidence, 0)
        check_choice("FoolsGold", "where", self.where, PLACES)

    def step(self, memory: object, round_: Round, rng: np.random.Generator) -> tuple[Array, FoolsGoldMemory]:
        """Return the average of the round's displacements, weighted by all rounds so far."""
        past = recalled(self, memory, FoolsGoldMemory).sums
        last = self.where == "last-layer" and bool(round_.layers)
        columns = last_layer_of(round_.layers) if last else slice(None)
        g = round_.global_model
        now = {c: round_.updates[i, columns] - g[columns] for i, c in enumerate(round_.clients)}
        sums = {c: past[c] + step if c in past else copied(step) for c, step in now.items()}
        xp = array_api_compat.array_namespace(g)
        weights = foolsgold_weights(cosines_of_gram(gram(xp.stack(list(sums.values())))), self.confidence)
        new = FoolsGoldMemory({**past, **sums})
        if not weights.any():
            return copied(g), new
        return move(g, weights / weights.sum(), round_.updates), new


def foolsgold_weights(cosines: FloatMatrix, confidence: float = 1.0) -> FloatVector:
    """Return the weight of each client, from 0 to 1, from the cosines between the clients' sums.

    Examples
    --------
    >>> foolsgold_weights(np.array([[1., 0., 0.1], [0., 1., 1.], [0.1, 1., 1.]])).round(3)
    array([1., 0., 0.])
    """
    m = cosines.shape[0]
    if m == 1:
        return np.ones(1)
    alike = cosines - np.diag(np.diagonal(cosines))
    most = alike.max(axis=1) + TINY
    pardon = np.minimum(most[:, None] / most[None, :], 1.0)
    alpha = np.clip(1.0 - (alike * pardon).max(axis=1), 0.0, 1.0)
    if alpha.max() == 0:
        return np.zeros(m)
    alpha = np.minimum(alpha / alpha.max(), 0.99)  # the odds of 1 are infinite; those of 0.99 are clipped to 1 too
    weights: FloatVector = np.clip(confidence * (np.log(alpha / (1 - alpha) + TINY) + 0.5), 0.0, 1.0)
    return weights
