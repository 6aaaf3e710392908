"""A clock that measures how long each phase of a round takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from flanders.record import PHASES


class Clock:
    """Adds up the seconds of each phase.

    If one phase runs inside another, the time of the inner phase does not count for the outer phase.
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._device = device
        self._inner = 0.0  # the time of the phases inside the current phase

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Measure the time that the `with` block takes, and add it to a phase, which is one of `PHASES`."""
        inner_of_outer, self._inner = self._inner, 0.0
        start = self._now()
        yield
        spent = self._now() - start
        self.seconds[phase] += spent - self._inner
        self._inner = inner_of_outer + spent

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
