"""The events of runs: a run starts, a round ends, a run ends.

The processes that carry out runs report these events. The progress display and callbacks receive them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flanders.record import RoundRecord


@dataclass(frozen=True)
class RunStarted:
    """A run starts, or continues after an interruption."""

    run: str
    """The id of the run."""
    label: str
    """A short description of the run."""
    rounds: int
    """How many rounds the run has."""
    after: int
    """The last round that is already done. 0 if the run starts from the beginning."""


@dataclass(frozen=True)
class RoundEnded:
    """A round has ended."""

    run: str
    """The id of the run."""
    record: RoundRecord


@dataclass(frozen=True)
class RunEnded:
    """A process no longer carries out a run."""

    run: str
    """The id of the run."""
    status: str
    """`done`, `failed`, `stopped` (the user has asked for it), or `lost` (another process has taken over the run,
    or the machine or process of the run was lost)."""
    error: str = ""
    """Why the run failed or was lost. Empty if it is done or was stopped."""


Event = RunStarted | RoundEnded | RunEnded
Notify = Callable[[Event], None]
"""A function that receives the events of runs."""
