"""The aggregator `FoolsGold`. It gives less weight to clients that send similar updates, round after round."""

from __future__ import annotations

from dataclasses import dataclass, field

import array_api_compat
import numpy as np

from flanders.aggregators.aggregator import Remembering, recalled
from flanders.arrays import Array, FloatMatrix, FloatVector, copied
from flanders.checks import check_choice, check_number
from flanders.client_ids import ClientId
from flanders.client_memory import newest_clients
from flanders.layers import last_layer_of
from flanders.linalg.products import cosines_of_gram, gram, move
from flanders.round import Round
from flanders.state import saveable

PLACES = ("last-layer", "all")
"""The values that `FoolsGold.where` may have."""
TINY = 1e-5
"""A small number, as in the authors' code. It is added to the largest cosine of each client, so that nothing is
divided by zero. It is also added to alpha / (1 - alpha), so that the logarithm of zero is not taken."""


@saveable
@dataclass(frozen=True, eq=False)
class FoolsGoldMemory:
    """The memory of `FoolsGold`."""

    sums: dict[ClientId, Array] = field(default_factory=dict)
    """For each client: the displacements of its models from the global model, added up over all rounds. Only the
    parameters that are compared are stored."""


@dataclass(frozen=True)
class FoolsGold(Remembering):
    r"""Give less weight to clients whose updates, added up over all rounds, are similar to those of another client.

    Attackers with a common goal send similar updates. Honest clients with different data do not. For each client
    the displacements of its models from the global model are added up over all rounds. Let :math:`s_{ij}` be the
    cosine between the sums of clients i and j, and let :math:`v_i = \max_j s_{ij}`, the largest cosine with another
    client. An honest client may by chance be similar to an attacker. The attacker then has the larger v, since it
    is even more similar to other attackers. To spare the honest client, :math:`s_{ij}` is multiplied by
    :math:`v_i / v_j` if :math:`v_j > v_i`. Then the weight of client i is

    .. math:: w_i = \kappa \left( \ln \frac{\alpha_i}{1 - \alpha_i} + \frac12 \right) \text{ clipped to } [0, 1],
              \qquad \alpha_i = \frac{1 - \max_j s_{ij}}{\max_k (1 - \max_j s_{kj})}.

    The result is the global model plus the weighted average of this round's displacements. If all weights are zero,
    the global model stays as it is. In the paper, clients send gradients instead of models. The paper adds up the
    weighted gradients, and does not divide by the sum of the weights.

    Parameters
    ----------
    confidence
        The factor :math:`\kappa`. The higher it is, the closer the weights are to 0 and 1.
    where
        Which parameters are compared: those of the `"last-layer"`, as in the paper, or `"all"`. If the layers are
        not known, all parameters are compared.

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
        """Return the new global model, and the memory with this round's displacements added."""
        past = recalled(self, memory, FoolsGoldMemory).sums
        last = self.where == "last-layer" and bool(round_.layers)
        columns = last_layer_of(round_.layers) if last else slice(None)
        g = round_.global_model
        now = {c: round_.updates[i, columns] - g[columns] for i, c in enumerate(round_.clients)}
        sums = {c: past[c] + step if c in past else copied(step) for c, step in now.items()}
        xp = array_api_compat.array_namespace(g)
        weights = foolsgold_weights(cosines_of_gram(gram(xp.stack(list(sums.values())))), self.confidence)
        new = FoolsGoldMemory(newest_clients(past, sums, len(round_.clients)))
        if not weights.any():
            return copied(g), new
        return move(g, weights / weights.sum(), round_.updates), new


def foolsgold_weights(cosines: FloatMatrix, confidence: float = 1.0) -> FloatVector:
    """Return the weight of each client, from 0 to 1, from the cosines between the clients' sums; see `FoolsGold`.

    Examples
    --------
    >>> foolsgold_weights(np.array([[1., 0., 0.1], [0., 1., 1.], [0.1, 1., 1.]])).round(3)
    array([1., 0., 0.])
    """
    m = cosines.shape[0]
    if m == 1:
        return np.ones(1)
    s = cosines - np.diag(np.diagonal(cosines))
    v = s.max(axis=1) + TINY
    pardon = np.minimum(v[:, None] / v[None, :], 1.0)  # v_i / v_j where v_j > v_i
    alpha = np.clip(1.0 - (s * pardon).max(axis=1), 0.0, 1.0)
    if alpha.max() == 0:
        return np.zeros(m)
    alpha = np.minimum(alpha / alpha.max(), 0.99)  # with alpha = 1, the logarithm would be infinite
    weights: FloatVector = np.clip(confidence * (np.log(alpha / (1 - alpha) + TINY) + 0.5), 0.0, 1.0)
    return weights
