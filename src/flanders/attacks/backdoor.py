"""Two attacks that carry a backdoor from poisoned data into the model: model replacement and Neurotoxin.

In the formulas, g is the global model, theta_c is what client c has trained on its poisoned data, and x_c is what
it sends. A step is a model minus g.
"""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat
import numpy as np

from flanders.arrays import Array, copied, like
from flanders.attacks.attack import Attack, View
from flanders.checks import check_number
from flanders.linalg.products import squared_norms
from flanders.linalg.selection import largest_entries
from flanders.state import saveable


@dataclass(frozen=True)
class ModelReplacement(Attack):
    r"""Scale up each client's own step, so that the average of the round becomes what the attacker has trained.

    .. math:: x_c = g + \gamma (\theta_c - g), \qquad
              \gamma = \min\left(\frac{m}{b}, \frac{S}{\|\theta_c - g\|}\right)

    Of the m clients of the round, b are malicious. S is the `bound`. The attack is meant for clients that train on
    poisoned data (`data_poison`). With a bound, the paper calls the attack train-and-scale: the attacker knows that
    a detector accepts steps up to the length S.

    Parameters
    ----------
    boost
        The factor with which each step is multiplied, before its length is bounded. Default: m / b.
    bound
        The largest length S of a step. Default: the length is not bounded.

    Examples
    --------
    >>> view = View(own=np.array([[3.0, 1.0]]), global_model=np.array([1.0, 1.0]), num_clients=4)
    >>> ModelReplacement()(view), ModelReplacement(bound=1.0)(view)
    (array([[9., 1.]]), array([[2., 1.]]))

    References
    ----------
    Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020.
    """

    boost: float | None = None
    bound: float | None = None

    def __post_init__(self) -> None:
        check_number("ModelReplacement", "boost", self.boost, 0, optional=True)
        check_number("ModelReplacement", "bound", self.bound, 0, optional=True)

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the scaled models."""
        factors = np.full(view.num_malicious, view.num_clients / view.num_malicious)
        if self.boost is not None:
            factors[:] = self.boost
        if self.bound is not None:
            lengths = np.sqrt(squared_norms(view.own, view.global_model))
            factors = np.minimum(factors, np.divide(self.bound, lengths, out=factors.copy(), where=lengths > 0))
        g = view.global_model[None, :]
        return g + like(factors, view.own)[:, None] * (view.own - g)


@saveable
@dataclass(frozen=True, eq=False)
class SeenModel:
    """What `Neurotoxin` remembers of the last round that the attacker saw."""

    model: Array
    """The global model."""
    busy: Array = None
    """The parameters that the last step of the global model changed most, as booleans, `(d,)`. None if the attacker
    has not seen the global model move yet."""


@dataclass(frozen=True)
class Neurotoxin(Attack):
    r"""Poison only the parameters that honest clients hardly change, so that honest training keeps the backdoor.

    .. math:: x_{cj} = \begin{cases} g_j & |g_j^{(t)} - g_j^{(t-1)}| \text{ is among the largest} \\
              \theta_{cj} & \text{otherwise} \end{cases}

    t counts the rounds in which a client of the attacker takes part, and :math:`g^{(t)}` is the global model at the
    start of round t. j is the index of a parameter. The parameters that the last step of the global model changed
    most are called busy. Malicious clients leave busy parameters as they are. The attack is meant for clients that
    train on poisoned data (`data_poison`).

    In the simulator, malicious clients set the gradients of busy parameters to zero during their local training, as
    in the paper. Elsewhere, e.g. with `--engine flower`, they train all parameters, and then set the busy ones back
    to the values of the global model. In the first round that the attacker sees, there is no last step yet. The
    attacker's clients then send their trained models.

    Parameters
    ----------
    share
        The share of parameters that count as busy. The paper's best value is 0.05.

    Examples
    --------
    >>> toxin = Neurotoxin(share=0.5)
    >>> before = View(own=np.ones((1, 2)), global_model=np.zeros(2), num_clients=4)
    >>> memory = toxin.remember(before, toxin(before))
    >>> toxin(View(np.array([[9.0, 9.0]]), np.array([5.0, 0.1]), 4, memory=memory))
    array([[5., 9.]])

    References
    ----------
    Zhang et al., "Neurotoxin: durable backdoors in federated learning", ICML 2022.
    """

    share: float = 0.05

    def __post_init__(self) -> None:
        check_number("Neurotoxin", "share", self.share, 0, 1)

    @property
    def freezes(self) -> bool:
        """True: malicious clients do not train busy parameters."""
        return True

    def frozen(self, memory: object, global_model: Array) -> Array | None:
        """Return the busy parameters as booleans. None if the attacker has not seen the global model move yet."""
        if not isinstance(memory, SeenModel):
            return None
        xp = array_api_compat.array_namespace(global_model)
        step = global_model - memory.model
        if not bool(xp.any(step != 0)):
            return memory.busy
        return largest_entries(step, round(self.share * step.shape[0]))

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the trained models with the busy parameters set back to the global model."""
        busy = self.frozen(view.memory, view.global_model)
        if busy is None:
            return copied(view.own)
        xp = array_api_compat.array_namespace(view.own)
        return xp.where(busy[None, :], view.global_model[None, :], view.own)

    def remember(self, view: View, sent: Array) -> SeenModel:
        """Keep the global model and its busy parameters."""
        return SeenModel(copied(view.global_model), self.frozen(view.memory, view.global_model))
