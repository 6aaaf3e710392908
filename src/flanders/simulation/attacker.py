"""The attacker of the simulator. It controls some clients and decides what they send.

In each round, `Simulation` calls `begin` and `frozen` before the clients train, and `poison` after they have
trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flanders.arrays import BoolVector, FloatVector, IntVector
from flanders.attacks import Attack, View
from flanders.attacks.attack import Rehearsal
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.layers import last_layer_of
from flanders.round import Round
from flanders.simulation.setting import Threat

STREAMS = ("attack", "attacker")
"""The names of the attacker's random generators: the first for its attack, the second to choose its clients."""


@dataclass(frozen=True, eq=False)
class Turn:
    """The clients that the attacker controls in one round, chosen before the clients train."""

    number: int
    """The number of the round."""
    clients: IntVector
    """The m clients that the server selected, `(m,)`."""
    controlled: BoolVector
    """Which of `clients` the attacker controls. It sees their models even in rounds without an attack."""
    malicious: BoolVector
    """Which of `clients` attack in this round: from round `Threat.start` on all clients that the attacker controls,
    and before that no client."""


@dataclass(frozen=True, eq=False)
class Received:
    """What the server receives in a round, with a row for each selected client."""

    updates: Tensor
    """The models of the m clients with d parameters each, `(m, d)`."""
    clients: IntVector
    """The ids of the clients as the server sees them. With `Threat.sybils`, malicious clients have new ids."""
    malicious: BoolVector
    """Which rows are poisoned. The server does not know this."""


class Attacker:
    """Controls some clients of a federation.

    Parameters
    ----------
    threat
        Which share of the clients attacks, when, how, and with what knowledge.
    num_clients
        The number of clients in the federation, K.
    streams
        The random generators `"attack"` and `"attacker"`, as `Setting.streams` returns them.
    layers
        The number of parameters in each tensor of the model, by the tensor's name. From these numbers, the attacker
        finds the last layer of the model. Default: not known.

    Examples
    --------
    >>> from flanders.attacks import SignFlip
    >>> streams = {"attack": np.random.default_rng(0), "attacker": np.random.default_rng(1)}
    >>> attacker = Attacker(Threat(SignFlip(), fraction=0.25), 4, streams)
    >>> turn = attacker.begin(1, np.arange(4))
    >>> received = attacker.poison(turn, torch.ones(4, 2), torch.zeros(2))
    >>> bool((received.updates.sum(1) < 0).numpy()[turn.malicious].all()), int(received.malicious.sum())
    (True, 1)
    """

    def __init__(
        self,
        threat: Threat,
        num_clients: int,
        streams: Mapping[str, np.random.Generator],
        *,
        layers: Mapping[str, int] | None = None,
    ) -> None:
        self.threat, self.num_clients = threat, num_clients
        self._streams = {role: streams[role] for role in STREAMS}
        self._layers = {} if layers is None else dict(layers)
        self._memory: Any = None
        self._own = self._draw()

    def begin(self, number: int, clients: IntVector) -> Turn:
        """Return which of the selected `clients` the attacker controls in round `number`.

        With `Threat.rotating`, the attacker first chooses new clients to control.
        """
        if self.threat.rotating:
            self._own = self._draw()
        controlled = np.isin(clients, self._own)
        return Turn(number, clients, controlled, controlled & (number >= self.threat.start))

    def frozen(self, turn: Turn, global_model: Tensor) -> Tensor | None:
        """Return a mask of the parameters that malicious clients do not train, or None if they train all."""
        if self.threat.attack is None or not turn.malicious.any():
            return None
        mask: Tensor | None = self.threat.attack.frozen(self._memory, global_model)
        return mask

    def poison(
        self,
        turn: Turn,
        updates: Tensor,
        global_model: Tensor,
        defense: Defense | None = None,
        weights: FloatVector | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> Received:
        """Replace the models of malicious clients in `updates`, in place, and return what the server receives.

        In rounds without an attack, the attacker's clients send honest models. The attacker still remembers what it
        sees in such a round, if the server has selected any of its clients.

        Only an omniscient attacker (`Threat.omniscient`) uses `defense` and `weights`. From `defense` it learns
        which parameters the filter looks at, and which model the server would compute from given malicious updates.
        `weights` are the weights of the clients in the average.

        Some attacks need a `rehearsal`: models that were trained without poison, and a test of the backdoor.
        """
        if not turn.controlled.any():
            return self._received(turn, updates, turn.malicious)
        threat, malicious = self.threat, turn.malicious
        mine = torch.from_numpy(np.flatnonzero(turn.controlled)).to(updates.device)
        own = updates[mine]
        if threat.data_poison is not None and malicious.any():
            own = threat.data_poison.send(own, global_model, len(turn.clients))
        sent = own
        if threat.attack is not None:
            view = replace(self._view(turn, own, updates, global_model, defense, weights), rehearsal=rehearsal)
            if malicious.any():
                sent = crafted(threat.attack, view, self._streams["attack"])
                if threat.data_poison is None and threat.attack.rests(view):
                    malicious = np.zeros_like(malicious)
            self._memory = threat.attack.remember(view, sent)
        if malicious.any():
            updates[mine] = sent.to(updates.dtype)
        return self._received(turn, updates, malicious)

    @property
    def state(self) -> dict[str, object]:
        """Everything that the attacker remembers.

        `save_state` can save it. Assign a saved state to continue from it.
        """
        positions = {role: stream.bit_generator.state for role, stream in self._streams.items()}
        return {"memory": self._memory, "streams": positions}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        self._memory = state["memory"]
        for role, position in state["streams"].items():
            self._streams[role].bit_generator.state = position

    def _draw(self) -> IntVector:
        count = self.threat.malicious_of(self.num_clients)
        return self._streams["attacker"].choice(self.num_clients, count, replace=False)

    def _view(
        self,
        turn: Turn,
        own: Tensor,
        updates: Tensor,
        global_model: Tensor,
        defense: Defense | None,
        weights: FloatVector | None,
    ) -> View:
        """Return what the attacker knows in this round."""
        clients, everything = turn.clients, self.threat.omniscient
        others = np.flatnonzero(~turn.controlled)
        return View(
            own,
            global_model,
            len(clients),
            tuple(clients[turn.controlled].tolist()),
            benign=updates[torch.from_numpy(others).to(updates.device)] if everything else None,
            benign_clients=tuple(clients[others].tolist()) if everything else (),
            memory=self._memory,
            server_columns=watched_columns(defense, len(global_model), self._layers) if everything else None,
            last_layer=last_layer_of(self._layers, without_owner=len(self._layers)) if self._layers else None,
            respond=self._respond(turn, updates, global_model, defense, weights) if everything else None,
        )

    def _respond(
        self,
        turn: Turn,
        updates: Tensor,
        global_model: Tensor,
        defense: Defense | None,
        weights: FloatVector | None,
    ) -> Callable[[Tensor], Tensor] | None:
        """Return a function that takes malicious updates and returns the model that the server would compute.

        The server would compute the model from the malicious updates and those of the honest clients of the round.
        Return None if there is no defence. Also return None if the defence needs examples of the server, since the
        attacker does not have them.
        """
        if defense is None or defense.filter.needs_examples or defense.aggregator.needs_root:
            return None
        mine = torch.from_numpy(np.flatnonzero(turn.controlled)).to(updates.device)
        names = tuple(self._received(turn, updates, turn.malicious).clients.tolist())

        def respond(rows: Tensor) -> Tensor:
            everyone = updates.clone()
            everyone[mine] = rows.to(updates.dtype)
            round_ = Round(everyone, names, weights, global_model, layers=self._layers)
            model: Tensor = defense.preview(round_, np.random.default_rng(turn.number))
            return model

        return respond

    def _received(self, turn: Turn, updates: Tensor, malicious: BoolVector) -> Received:
        """Return what the server receives. With `Threat.sybils`, malicious clients get new ids."""
        clients = turn.clients
        if self.threat.sybils:
            clients = np.where(malicious, self.num_clients * turn.number + clients, clients)
        return Received(updates, clients, malicious)


def watched_columns(defense: Defense | None, d: int, layers: Mapping[str, int]) -> IntVector:
    """Return the parameters that a defence looks at: the same few parameters in all rounds, or all d parameters."""
    columns = None if defense is None else defense.filter.visible_columns(defense.state, d, layers)
    return np.arange(d) if columns is None else columns


def crafted(attack: Attack, view: View, rng: np.random.Generator) -> Tensor:
    """Return the malicious updates of an attack. Raise an error if they have the wrong type or shape."""
    sent = attack.craft(view, rng)
    wanted = tuple(view.own.shape)
    if not isinstance(sent, Tensor):
        sent_type = f"{type(sent).__module__}.{type(sent).__qualname__}".removeprefix("builtins.")
        what = f"{sent_type}, expected a torch.Tensor of shape {wanted}"
    elif tuple(sent.shape) != wanted:
        what = f"shape {tuple(sent.shape)}, expected {wanted}"
    else:
        return sent
    raise InputError(f"{type(attack).__name__}.craft returned {what}: a row for each of the attacker's clients.")
