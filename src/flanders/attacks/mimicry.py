"""Two attacks that send one model many times.

`Mimic` sends the model of one honest client. `Static` sends the same malicious model in every round.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from flanders.arrays import Array, copied
from flanders.attacks.attack import Attack, View
from flanders.attacks.crafting import copies, is_honest
from flanders.attacks.noise import SignFlip
from flanders.checks import InputError, check_instance
from flanders.client_ids import ClientId, by_name


@dataclass(frozen=True)
class Mimic(Attack):
    r"""Let all b malicious clients send the model of one honest client, so that this model counts b + 1 times.

    .. math:: x = \theta_h \quad \text{for an honest client } h

    :math:`\theta_h` is the model that client h has trained, and x is what the malicious clients send. No single
    model is abnormal. But if clients have different data, the copies bias aggregators that trust the majority.

    Parameters
    ----------
    client
        The id of the client to copy. The attacker must know this client's model in every poisoned round. By
        default, the benign client with the lowest id is copied, where numbers come before strings. Benign clients
        are those that the attacker does not control. If the attacker knows no benign model, it copies the first of
        its own clients.

    Examples
    --------
    >>> view = View(
    ...     own=np.zeros((1, 2)),
    ...     global_model=np.zeros(2),
    ...     num_clients=4,
    ...     benign=np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ... )
    >>> Mimic()(view)
    array([[1., 2.]])

    References
    ----------
    Karimireddy et al., "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
    """

    client: ClientId | None = None

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the client's model."""
        return copies(self._model(view), view.num_malicious)

    def _model(self, view: View) -> Array:
        benign = view.benign_clients if view.honest is view.benign else ()
        if self.client is None:
            ids = view.clients if view.honest is view.own else benign
            return view.honest[int(by_name(ids)[0]) if ids else 0, :]
        known = view.clients + benign
        if self.client not in known:
            raise InputError(
                f"Mimic(client={self.client!r}) needs the model of this client. But in this round the attacker "
                f"knows only the models of {', '.join(map(repr, known))}. Choose a client that takes part in every "
                "round, or leave `client` out."
            )
        if self.client in benign:
            return view.honest[benign.index(self.client), :]
        return view.own[view.clients.index(self.client), :]


@dataclass(frozen=True)
class Static(Attack):
    r"""Craft one malicious model in the first poisoned round and send the same model in all later rounds.

    .. math:: x^{(t)} = x^{(t_0)} \quad \text{for all } t \ge t_0

    :math:`x^{(t)}` is what all malicious clients send in round t. :math:`t_0` is the first poisoned round. The
    model is the first row that `base` crafts in that round. A filter that trusts clients whose models it can
    predict will trust a model that never changes.

    Parameters
    ----------
    base
        The attack that crafts the model.

    Examples
    --------
    >>> attack, rng = Static(), np.random.default_rng(0)
    >>> first = View(own=np.array([[3.0, 1.0]]), global_model=np.zeros(2), num_clients=4)
    >>> sent = attack.craft(first, rng)
    >>> sent
    array([[-3., -1.]])
    >>> later = View(np.array([[9.0, 9.0]]), np.ones(2), num_clients=4, memory=attack.remember(first, sent))
    >>> attack.craft(later, rng)
    array([[-3., -1.]])

    References
    ----------
    This package.
    """

    base: Attack = field(default_factory=SignFlip)

    def __post_init__(self) -> None:
        check_instance("Static", "base", self.base, Attack, "AgrMinMax()")

    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return b copies of the remembered model. If no model is remembered yet, craft one."""
        model = self.base.craft(view, rng)[0, :] if view.memory is None else view.memory
        return copies(model, view.num_malicious)

    def remember(self, view: View, sent: Array) -> Array:
        """Return the first malicious model that was sent. Before the first poisoned round, return None."""
        return view.memory if view.memory is not None or is_honest(view, sent) else copied(sent[0, :])
