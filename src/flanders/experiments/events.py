"""What a grid tells whoever watches it. Plain data, so that it can cross from one process to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flanders.results.tree import Table


@dataclass(frozen=True)
class RunStarted:
    """A run begins, or goes on after round `after`."""

    run: str
    spec: Table
    after: int


@dataclass(frozen=True)
class RoundEnded:
    """A round is over and saved."""

    run: str
    number: int
    accuracy: float
    kept: int
    caught: int
    """Malicious and dropped."""
    missed: int
    """Malicious and kept."""


@dataclass(frozen=True)
class RunEnded:
    """A run has been left: `done`, `failed`, `stopped` on request, or `lost` to another process."""

    run: str
    status: str
    error: str = ""


Event = RunStarted | RoundEnded | RunEnded
Notify = Callable[[Event], None]
