"""Attacks as mods of a ClientApp, to try a defence on a real deployment.

A mod sees one client: its own honest model and the global one. Attacks that are made of other clients' models
run in the simulator, whose attacker holds many clients at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from flanders.attacks import Attack, View
from flanders.catalog import ATTACKS
from flanders.checks import InputError, check_number
from flanders.flower.plan import Plan
from flanders.state import load_state, save_state

MEMORY = "flanders-attack"
"""Where a node keeps what its attack remembers, from message to message."""
ME = 0


def poisoned(
    attack: str | Attack,
    *,
    when: Callable[[Context], bool] = lambda context: True,
    start: int = 1,
    num_clients: int = 10,
    seed: int | None = None,
    **parameters: Any,
) -> Mod:
    """Return a mod that makes a ClientApp send poisoned models.

    The ClientApp trains as ever; what it sends is replaced. Float arrays that are not buffers are attacked.

    Parameters
    ----------
    attack
        The name of an attack (see `flanders list attacks`) with its `parameters`, or the attack itself. It must
        need no other client's model.
    when
        Decides by the node's context who is malicious, e.g. by `context.node_config["partition-id"]`.
    start
        The first poisoned round. Attacks that remember watch from the beginning.
    num_clients
        How many clients the attacker believes to take part in a round.
    seed
        Makes the attack's randomness repeatable.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[poisoned("sign-flip", scale=2.0, when=lambda c: c.node_config["partition-id"] < 2)])
    >>> poisoned("lie")
    Traceback (most recent call last):
        ...
    flanders.types.InputError: The attack 'lie' needs the models of other clients, ...
    """
    chosen = ATTACKS.make(attack, **parameters) if isinstance(attack, str) else attack
    if not isinstance(chosen, Attack) or (parameters and not isinstance(attack, str)):
        raise InputError(
            f"`attack` must be the name of an attack, with its parameters, or an Attack. Got {attack!r} instead."
        )
    check_number("poisoned", "start", start, 1, whole=True)
    check_number("poisoned", "num_clients", num_clients, 1, whole=True)
    check_works_alone(chosen)

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        given = list(message.content.array_records.values())
        training = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
        if not training or len(given) != 1 or not when(context):
            return call_next(message, context)
        plan, g = _read(given[0])
        reply = call_next(message, context)
        if reply.has_error() or len(reply.content.array_records) != 1:
            return reply
        ((name, trained),) = reply.content.array_records.items()
        own = _flat(plan, trained)
        view = View(
            own[None, :],
            g.astype(own.dtype),
            num_clients,
            (ME,),
            memory=_recall(context),
            last_layer=_last_layer(plan),
        )
        number = _round_number(message)
        rng = np.random.default_rng(None if seed is None else [seed, context.node_id, number])
        sent = chosen.craft(view, rng) if number >= start else view.own
        _remember(context, chosen.remember(view, sent))
        reply.content[name] = _replaced(plan, trained, np.asarray(sent)[0])
        return reply

    return mod


def check_works_alone(attack: Attack) -> None:
    """Complain if an attack has no effect from a client that knows no model but its own.

    It is tried on a small federation of its own: an attack made of other clients' models says so, or returns the
    honest model, for it has nothing to move it by.
    """
    rng, memory, why = np.random.default_rng(0), None, "without them it sends the honest model"
    g = rng.normal(size=16).astype(np.float32)
    for _ in range(3):  # some have to see a round before they attack
        own = g[None, :] + 0.1 * rng.normal(size=(1, 16)).astype(np.float32)
        view = View(own, g, 10, (ME,), memory=memory, last_layer=slice(12, 16))
        try:
            sent = np.asarray(attack.craft(view, rng))
            memory = attack.remember(view, sent)
        except InputError as error:
            why = str(error)
            break
        if not np.array_equal(sent, own):
            return
        g = own[0]
    raise InputError(
        f"The attack {ATTACKS.name_of(attack)!r} needs the models of other clients, or knowledge of the server, "
        f"which a single ClientApp does not have: {why}. Run it in the simulator instead (`flanders run` with this "
        "attack), where one attacker holds many clients."
    )


def _read(arrays: ArrayRecord) -> tuple[Plan, NDArray[Any]]:
    plan = Plan.of(arrays)
    return plan, _flat(plan, arrays)


def _flat(plan: Plan, arrays: ArrayRecord) -> NDArray[Any]:
    """Return the attacked arrays as one vector of their common type, float32 or float64."""
    pieces = [numbers.ravel() for _, numbers in plan.scored(arrays)]
    return np.concatenate(pieces).astype(np.float64 if any(p.dtype == np.float64 for p in pieces) else np.float32)


def _replaced(plan: Plan, trained: ArrayRecord, sent: NDArray[Any]) -> ArrayRecord:
    """Return what was trained with other numbers in the attacked arrays, of the same types."""
    arrays = dict(trained.items())
    for piece, numbers in plan.scored(trained):
        arrays[piece.name] = Array(sent[piece.place].reshape(piece.shape).astype(numbers.dtype))
    return ArrayRecord(arrays)


def _last_layer(plan: Plan) -> slice:
    """Return the parameters of the last layer: the arrays that share the last one's name up to its last dot."""
    scored = [piece for piece in plan.pieces if piece.scored]
    owner = scored[-1].name.rpartition(".")[0]
    mine = [p for p in scored if p.name.rpartition(".")[0] == owner] if owner else scored[-2:]
    return slice(min(p.start for p in mine), plan.size)


def _round_number(message: Message) -> int:
    """Return the round as the server told it; 1 if it did not."""
    for record in message.content.config_records.values():
        number: Any = record.get("server-round")
        if number is not None:
            return int(number)
    return 1


def _remember(context: Context, memory: Any) -> None:
    if memory is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory"
        save_state(path, memory)
        context.state[MEMORY] = ConfigRecord({"memory": path.read_bytes()})


def _recall(context: Context) -> Any:
    if MEMORY not in context.state:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory"
        saved: Any = context.state[MEMORY]["memory"]
        path.write_bytes(saved)
        return load_state(path)
