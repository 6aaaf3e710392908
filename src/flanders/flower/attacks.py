"""The function `poisoned`: makes a Flower mod that turns a ClientApp malicious, to try a defence on a deployment.

In Flower, a mod is a function that is put around a ClientApp: it gets each message first, and can change the reply.
This mod sees only the global model and the honest model of its own client. An attack that needs the models of other
clients can only run in the simulator, where one attacker controls many clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable, Mod

from flanders.attacks import Attack, View
from flanders.catalog import ATTACKS
from flanders.checks import InputError, check_number
from flanders.flower.model_arrays import ModelArrays
from flanders.layers import last_layer_of
from flanders.state import state_from_bytes, state_to_bytes

MEMORY = "flanders-attack"
"""The name of the record in which a node stores the memory of the attack."""
ME = 0
"""The client id that the attack sees. Any number would do, since the attack sees only one client."""


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

    The ClientApp trains as usual, and the mod replaces the model before it is sent. Only float arrays that are not
    buffers are changed.

    Parameters
    ----------
    attack
        The name of an attack (see `flanders list attacks`), or an `Attack` object. It must not need the models of
        other clients.
    when
        A function that takes the context of a node and returns whether the node is malicious. It can use e.g.
        `context.node_config["partition-id"]`. Default: the node is malicious.
    start
        The number of the first poisoned round. In earlier rounds the client sends its honest model, but the attack
        may already remember what it sees.
    num_clients
        How many clients the attacker believes to be in a round. Some attacks depend on this number.
    seed
        Makes the randomness of the attack repeatable.
    **parameters
        The parameters of an attack that is given by its name.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[poisoned("sign-flip", scale=2.0, when=lambda c: c.node_config["partition-id"] < 2)])
    >>> poisoned("lie")
    Traceback (most recent call last):
        ...
    flanders.checks.InputError: The attack 'lie' needs the models of other clients, ...
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
        records = list(message.content.array_records.values())
        training = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
        if not training or len(records) != 1 or not when(context):
            return call_next(message, context)
        model = ModelArrays.of(records[0])
        before = model.flatten(records[0], model.float_type(records[0]))
        reply = call_next(message, context)
        if reply.has_error() or len(reply.content.array_records) != 1:
            return reply
        ((name, trained),) = reply.content.array_records.items()
        own = model.flatten(trained, model.float_type(trained))
        view = View(
            own[None, :],
            before.astype(own.dtype),
            num_clients,
            (ME,),
            memory=_recall(context),
            last_layer=last_layer_of(model.layers, without_owner=2),
        )
        number = _round_number(message)
        rng = np.random.default_rng(None if seed is None else [seed, context.node_id, number])
        sent = chosen.craft(view, rng) if number >= start else view.own
        _remember(context, chosen.remember(view, sent))
        reply.content[name] = model.unflatten(np.asarray(sent)[0], trained)
        return reply

    return mod


def check_works_alone(attack: Attack) -> None:
    """Raise an `InputError` if an attack has no effect when the attacker knows only the model of one client.

    The attack is tried on three small rounds. An attack that needs the models of other clients raises an error, or
    returns the honest model in all three rounds.
    """
    rng, memory, why = np.random.default_rng(0), None, "without them it sends the honest model"
    global_model = rng.normal(size=16).astype(np.float32)
    for _ in range(3):  # some attacks only observe in their first round
        own = global_model[None, :] + 0.1 * rng.normal(size=(1, 16)).astype(np.float32)
        view = View(own, global_model, 10, (ME,), memory=memory, last_layer=slice(12, 16))
        try:
            sent = np.asarray(attack.craft(view, rng))
            memory = attack.remember(view, sent)
        except InputError as error:
            why = str(error)
            break
        if not np.array_equal(sent, own):
            return
        global_model = own[0]
    raise InputError(
        f"The attack {ATTACKS.name_of(attack)!r} needs the models of other clients, or knowledge of the server, "
        f"which a single ClientApp does not have: {why}. Run it in the simulator instead (`flanders run` with this "
        "attack), where one attacker controls many clients."
    )


def _round_number(message: Message) -> int:
    """Return the number of the round from the server's message; 1 if it has none."""
    for record in message.content.config_records.values():
        number = record.get("server-round")
        if isinstance(number, int | float):
            return int(number)
    return 1


def _remember(context: Context, memory: object) -> None:
    if memory is not None:
        context.state[MEMORY] = ConfigRecord({"memory": state_to_bytes(memory)})


def _recall(context: Context) -> object:
    if MEMORY not in context.state:
        return None
    saved = context.state.config_records[MEMORY]["memory"]
    return state_from_bytes(saved) if isinstance(saved, bytes) else None
