"""The state of a simulation: all that it needs to continue later with the same results, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from flanders.checks import InputError
from flanders.defense import Defense
from flanders.simulation.attacker import Attacker
from flanders.simulation.world import World


class Resumable(Protocol):
    """The attributes of a simulation that the functions of this module use."""

    world: World
    attacker: Attacker
    model: Tensor
    buffers: dict[str, Tensor]
    round_number: int

    @property
    def defense(self) -> Defense:
        """The filter and the aggregator, with what they remember."""


def state_of(simulation: Resumable, version: int | str) -> dict[str, object]:
    """Return the state of a simulation between two rounds. `flanders.state.save_state` can save it to a file.

    `version` names the format of the state.
    """
    return {
        "format": version,
        "round": simulation.round_number,
        "model": simulation.model,
        "buffers": dict(simulation.buffers),
        "defense": simulation.defense.memory,
        "attacker": simulation.attacker.state,
        "learned": None if (learned := learned_by(simulation.world)) is None else learned.clone(),
        "selection": simulation.world.streams["clients"].bit_generator.state,
    }


def restore(simulation: Resumable, state: Mapping[str, Any], version: int | str) -> None:
    """Set a simulation to a state that `state_of` returned for the same setting and the same `version`."""
    shape, needed = tuple(getattr(state.get("model"), "shape", ())), tuple(simulation.model.shape)
    if state.get("format") != version or shape != needed:
        raise InputError(
            f"This state does not fit this simulation. It has the format {state.get('format')!r} and a model of "
            f"shape {shape}. Format {version!r} and shape {needed} are needed. "
            "Start the run from the beginning, or use the setting with which the state was saved."
        )
    device = simulation.world.device
    simulation.round_number = state["round"]
    simulation.model = state["model"].to(device)
    simulation.buffers = {name: b.to(device) for name, b in state["buffers"].items()}
    simulation.defense.memory, simulation.attacker.state = state["defense"], state["attacker"]
    if (learned := learned_by(simulation.world)) is not None and state.get("learned") is not None:
        learned.copy_(state["learned"])
    simulation.world.streams["clients"].bit_generator.state = state["selection"]


def learned_by(world: World) -> Tensor | None:
    """Return the trigger or the labels that the data poison has learned so far, or None if it does not learn."""
    poisoner = world.poisoner
    return poisoner.scope.learned if poisoner is not None and poisoner.poison.learns else None
