"""`Attack`, the base class of all attacks, and `View`, what the attacker knows in a round.

The formulas of all attacks use the same letters:

- m is the number of clients in the round. The attacker controls b of them. A model is a vector of d parameters.
- g is the global model that the round started from. A model minus g is called a displacement or a step.
- theta_c is the model that client c has honestly trained.
- mu and sigma are vectors: the mean and the standard deviation of each parameter over the honest models that the
  attacker knows.
- x_c is the model that malicious client c sends. If all malicious clients send the same model, it is called x.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from flanders.arrays import Array, IntVector, without_graph
from flanders.checks import InputError, check_number
from flanders.client_ids import ClientId, check_clients
from flanders.round import check_matrix, check_same_kind, check_vector


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What an attacker needs to try out a backdoor before it sends anything.

    Only attacks whose `needs_rehearsal` is true get a rehearsal.
    """

    clean: Array
    """The models that the attacker's clients have trained on clean data, without the backdoor, `(b, d)`."""
    success: Callable[[Array], float]
    """A function that tests the backdoor in a model, `(d,)`, with examples of the attacker's own clients. It
    returns the share of these examples, from 0 to 1, to which the model gives the attacker's class."""
    layers: Mapping[str, int]
    """The number of parameters of each tensor, by the tensor's name, in the order of the parameter vector."""


@dataclass(frozen=True, eq=False)
class View:
    """Everything that the attacker knows in a round.

    Parameters
    ----------
    own
        The models that the attacker's own b clients have trained honestly in this round, `(b, d)`.
    global_model
        The model that the round started from, `(d,)`.
    num_clients
        How many clients take part in the round, m, including the attacker's own clients.
    clients
        The ids of the attacker's own clients. Default: 0 to b - 1.
    benign
        The models of all other clients, which are called benign, `(m - b, d)`. None if the attacker does not know
        these models. An attacker that knows them is called omniscient.
    benign_clients
        The ids of the other clients, in the order of `benign`.
    memory
        What the attack remembers of earlier rounds; see `Attack.remember`.
    server_columns
        The indices of the parameters that the server's filter looks at. None if the attacker does not know them.
    last_layer
        The indices of the parameters of the model's last layer. None if they are not known.
    respond
        A function that takes b models, `(b, d)`. It returns the global model, `(d,)`, that the server would make if
        the attacker's clients sent these models. None if the attacker cannot compute it, e.g. because it does not
        know the server's filter and aggregator.
    rehearsal
        Models trained on clean data, and a test of the backdoor. None if the attack does not need them (see
        `Attack.needs_rehearsal`), or if there is no backdoor to test.
    """

    own: Array
    global_model: Array
    num_clients: int
    clients: tuple[ClientId, ...] = ()
    benign: Array | None = None
    benign_clients: tuple[ClientId, ...] = ()
    memory: Any = None
    server_columns: IntVector | None = None
    last_layer: slice | None = None
    respond: Callable[[Array], Array] | None = None
    rehearsal: Rehearsal | None = None

    def __post_init__(self) -> None:
        check_matrix(self.own)
        b, d = self.own.shape
        set_ = object.__setattr__
        set_(self, "own", without_graph(self.own))
        set_(self, "clients", check_clients(self.clients, b))
        set_(self, "global_model", check_vector(self.global_model, "global_model", self.own))
        check_number("View", "num_clients", self.num_clients, 1, whole=True)
        num_others = self.num_clients - b
        if num_others < 0:
            raise InputError(f"`own` has the models of {b} clients, but `num_clients` is only {self.num_clients}.")
        if self.benign is not None:
            shape = tuple(getattr(self.benign, "shape", (type(self.benign).__name__,)))
            if shape != (num_others, d):
                raise InputError(
                    f"`benign` must have shape {(num_others, d)}: a row for each other client. Got {shape}."
                )
            set_(self, "benign", check_same_kind(self.benign, "benign", self.own))
        if self.benign_clients:
            everyone = {*self.clients, *self.benign_clients}
            if len(self.benign_clients) != num_others or len(everyone) != self.num_clients:
                raise InputError(
                    f"`benign_clients` must name the {num_others} other clients of the round once each. "
                    f"Got {self.benign_clients!r}, and `clients` is {self.clients!r}."
                )
        if self.server_columns is not None:
            columns = np.asarray(self.server_columns)
            whole = columns.ndim == 1 and columns.dtype.kind in "iu"
            if columns.size and not (whole and columns.min() >= 0 and columns.max() < d):
                raise InputError(
                    f"`server_columns` must be indices of parameters, from 0 to {d - 1}. Got {columns}."
                )

    @property
    def num_malicious(self) -> int:
        """The number b of clients that the attacker controls."""
        return int(self.own.shape[0])

    @property
    def honest(self) -> Array:
        """The honest models from which the attack computes its statistics.

        Usually these are the benign models. If the attacker knows no benign models, they are the models that its
        own clients have honestly trained.
        """
        if self.benign is None or self.benign.shape[0] == 0:
            return self.own
        return self.benign

    @property
    def everyone(self) -> Array:
        """All models that the attacker knows: the honest models of its own clients, then the benign models."""
        if self.benign is None or self.benign.shape[0] == 0:
            return self.own
        xp = array_api_compat.array_namespace(self.own, self.benign)
        return xp.concat([self.own, self.benign])


class Attack(ABC):
    """The base class of attacks. An attack uses what the attacker knows to compute what the malicious clients send.

    A new attack is a frozen dataclass with the method `craft`, and an entry in `flanders.catalog`.
    """

    @property
    def needs_rehearsal(self) -> bool:
        """Whether the attack needs clean models and a test of its backdoor (`View.rehearsal`)."""
        return False

    @property
    def freezes(self) -> bool:
        """Whether malicious clients train with some parameters frozen; see `frozen`."""
        return False

    def frozen(self, memory: object, global_model: Array) -> Array | None:
        """Return which parameters malicious clients do not train in the coming round, as booleans, `(d,)`.

        None means that malicious clients train all parameters. `memory` is what `remember` returned after the last
        round. The simulator uses the result only if the malicious clients train on poisoned data (`data_poison`).
        """
        return None

    @abstractmethod
    def craft(self, view: View, rng: np.random.Generator) -> Array:
        """Return the malicious models, `(b, d)`, one for each of the attacker's clients."""

    def rests(self, view: View) -> bool:
        """Whether the attacker sends only honest models in this round.

        In such a round a client counts as malicious only if it has trained on poisoned data.
        """
        return False

    def remember(self, view: View, sent: Array) -> object:
        """Return what the attack remembers. In the next round, the attack finds it in `view.memory`.

        This method is called after every round in which a client of the attacker took part, even if no client sent
        a malicious model. `sent` has the models that the attacker's clients sent, `(b, d)`.
        """
        return view.memory

    def __call__(self, view: View, rng: np.random.Generator | None = None) -> Array:
        """Craft the malicious models. Without `rng`, an unseeded generator is used."""
        return self.craft(view, np.random.default_rng() if rng is None else rng)
