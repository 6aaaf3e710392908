"""The class `AsyncRounds`: asynchronous rounds, in which the server does not wait for slow clients.

The server gives a client the newest global model whenever the client is ready. It collects the replies in a buffer,
and a round ends when the buffer is full. This method is called FedBuff. Clients whose replies are in the same round
may have started from different global models. The age of a reply is the number of rounds that ended while its
client trained.

All models are flat: vectors of their d parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat

from flanders.arrays import Array, copied, without_graph
from flanders.checks import InputError, check_instance, check_number
from flanders.client_ids import ClientId, check_client
from flanders.defense import Defense
from flanders.hosts.claimed_weights import MOST_EXAMPLES
from flanders.outcome import Outcome
from flanders.round import check_same_kind

Discount = Callable[[int], float]
"""A function that takes the age of a reply and returns the factor by which the weight of the reply is
multiplied."""


def root_discount(age: int) -> float:
    """Return 1 / sqrt(1 + age), the discount of the FedBuff paper.

    Examples
    --------
    >>> root_discount(0), root_discount(3)
    (1.0, 0.5)
    """
    return float((1 + age) ** -0.5)


@dataclass(frozen=True, eq=False)
class BufferedReply:
    """A reply that waits for the buffer to be full."""

    step: Array
    """`(d,)`: the model that the client sent minus the model that it started from."""
    weight: float
    """The weight of the client, multiplied by the discount for the age."""
    age: int
    """The number of rounds that ended while the client trained."""


class AsyncRounds:
    """Collect replies of different ages. If the buffer is full, drop suspicious replies and aggregate the rest.

    A slow client may reply several rounds after it was given a model. Its step is the model that it sends minus the
    model that it was given. When the buffer is full, each step is added to the newest global model. A `Defense`
    gets these sums, as if all clients had just trained the newest model. By default, older replies get smaller
    weights.

    This object remembers which model each client was given, so a client cannot lie about the age of its reply. A
    reply of a client that was not given a model, or that has already replied, is an error.

    Parameters
    ----------
    model
        The initial global model, `(d,)`, an array of any library.
    defense
        Drops suspicious replies, and aggregates the rest. Default: `Defense()`.
    size
        The number of replies that make a round.
    max_age
        A reply of a higher age is an error. This bounds the memory: at most `max_age + 1` global models are stored.
    discount
        A function that takes the age of a reply and returns the factor by which its weight is multiplied. Default:
        `1 / sqrt(1 + age)`.

    Examples
    --------
    >>> import numpy as np
    >>> from flanders import KeepAll
    >>> rounds = AsyncRounds(np.zeros(3), Defense(KeepAll()), size=2)
    >>> for client in "abc":
    ...     model = rounds.begin(client)
    >>> rounds.add("a", np.ones(3)) is None
    True
    >>> rounds.add("b", np.ones(3)).kept
    array([0, 1])
    >>> rounds.add("c", 2 * np.ones(3)), rounds.waiting["c"].age
    (None, 1)

    References
    ----------
    Nguyen et al., "Federated learning with buffered asynchronous aggregation", AISTATS 2022.
    """

    def __init__(
        self,
        model: Array,
        defense: Defense | None = None,
        *,
        size: int = 10,
        max_age: int = 20,
        discount: Discount = root_discount,
    ) -> None:
        check_number("AsyncRounds", "size", size, 1, whole=True)
        check_number("AsyncRounds", "max_age", max_age, 0, whole=True)
        self.defense = Defense() if defense is None else defense
        check_instance("AsyncRounds", "defense", self.defense, Defense, "Defense()")
        if not array_api_compat.is_array_api_obj(model) or model.ndim != 1:
            raise InputError("The `model` parameter of AsyncRounds must be a flat model, an array of shape (d,).")
        self.size, self.max_age, self.discount = size, max_age, discount
        self.number = 0
        """The number of rounds that have ended."""
        self.waiting: dict[ClientId, BufferedReply] = {}
        """The replies that wait for the buffer to be full."""
        # The global models. The key of a model is the value that `number` had when the model was the newest.
        self._models: dict[int, Array] = {0: copied(model)}
        self._given: dict[ClientId, int] = {}  # for each client, the key in `_models` of the model that it trains

    @property
    def model(self) -> Array:
        """The newest global model."""
        return self._models[self.number]

    def begin(self, client: ClientId) -> Array:
        """Return the model to send to a client, and remember that the client was given this model."""
        check_client(client)  # otherwise the round in which the client replies would fail
        self._given[client] = self.number
        return copied(self.model)

    def add(self, client: ClientId, update: Array, weight: float = 1.0, **more: Any) -> Outcome | None:
        """Put the reply of a client into the buffer. If the buffer is full, end the round and return its outcome.

        `update` is the model that the client has trained. If this reply fills the buffer, the `Defense` is called
        with the arguments `more`, e.g. `layers=`. An `InputError` is raised if the client was not given a model by
        `begin`, if it has already replied, or if the age of the reply is above `max_age`.
        """
        if client not in self._given:
            raise InputError(
                f"No reply of client {client!r} is expected: it was not given a model, it has already replied, or "
                f"the model that it was given is more than {self.max_age} rounds old. Ignore this reply. Call "
                "`begin` whenever you send a model to a client."
            )
        if tuple(getattr(update, "shape", ())) != tuple(self.model.shape):
            raise InputError(
                f"Client {client!r} has sent an array of shape {getattr(update, 'shape', None)}, but the model has "
                f"{tuple(self.model.shape)}. Ignore its reply."
            )
        if not array_api_compat.array_namespace(update).isdtype(update.dtype, ("real floating", "integral")):
            raise InputError(
                f"Client {client!r} has sent an array of type {update.dtype}, but a model has real numbers. "
                "Ignore its reply."
            )
        check_number("AsyncRounds.add", "weight", weight, 0, MOST_EXAMPLES)
        given = self._given[client]
        age = self.number - given
        step = check_same_kind(without_graph(update), "update", self.model[None, :]) - self._models[given]
        self.waiting[client] = BufferedReply(step, weight * self.discount(age), age)
        del self._given[client]  # last: a reply that raises an error changes nothing
        return self._round(**more) if len(self.waiting) >= self.size else None

    def _round(self, **more: Any) -> Outcome:
        """Let the defense make a new global model from the replies in the buffer, and empty the buffer."""
        xp = array_api_compat.array_namespace(self.model)
        replies, self.waiting = self.waiting, {}
        updates = xp.stack([self.model + reply.step for reply in replies.values()])
        weights = [reply.weight for reply in replies.values()]
        if not any(weights):  # if all weights are 0, all replies count the same
            weights = [1.0] * len(weights)
        outcome = self.defense(updates, replies, weights, global_model=self.model, **more)
        self.number += 1
        self._models[self.number] = copied(outcome.model)
        needed = {given for given in self._given.values() if self.number - given <= self.max_age} | {self.number}
        self._models = {number: model for number, model in self._models.items() if number in needed}
        self._given = {client: given for client, given in self._given.items() if given in needed}
        return outcome
