"""What the processes that carry out runs report: a run starts, a round ends, a run ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RunStarted:
    """A run starts, or continues after round `after`."""

    run: str
    label: str
    """The run in a few words."""
    rounds: int
    """How many rounds it has."""
    after: int


@dataclass(frozen=True)
class RoundEnded:
    """A round is over and saved."""

    run: str
    number: int
    accuracy: float
    kept: int
    caught: int
    """The number of malicious clients that were not kept."""
    missed: int
    """The number of malicious clients that were kept."""


@dataclass(frozen=True)
class RunEnded:
    """A run has ended: `done`, `failed`, `stopped` on request, or `lost` to another process."""

    run: str
    status: str
    error: str = ""


Event = RunStarted | RoundEnded | RunEnded
Notify = Callable[[Event], None]
