"""What is written down of each round."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from flanders.defense import Outcome
from flanders.simulation.training import BoolVector
from flanders.types import ClientId, FloatVector


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What happened in a round; arrays have an entry for each client, in the order of `clients`."""

    number: int
    """From 1."""
    accuracy: float
    """Of the new global model, on the server's test examples."""
    loss: float
    attack_success: float
    """Share of triggered test images taken for the attacker's target; NaN if there is none."""
    seconds: dict[str, float]
    """Time by phase: train, attack, filter, aggregate, evaluate."""
    clients: tuple[int, ...]
    malicious: BoolVector
    """Who sent poison: the truth, which only the filter `oracle` and a rule that is `informed` get to know of."""
    kept: BoolVector
    scores: FloatVector
    """How abnormal each client looked; NaN where nothing judged it."""
    probabilities: FloatVector | None
    """Probability of being malicious, where the filter can tell."""
    threshold: float
    """The largest score that was kept; NaN if there is none."""
    unusable: tuple[ClientId, ...]
    """Clients whose models were not finite."""
    note: str
    """What was out of the ordinary."""
    reasons: Mapping[ClientId, str] = field(default_factory=dict)
    """What speaks against dropped clients, in words, where the filter can tell."""


class Clock:
    """Adds up time by phase; a phase inside another one is not counted in the outer."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = dict.fromkeys(("train", "attack", "filter", "aggregate", "evaluate"), 0.0)
        self._device = device
        self._inner = 0.0

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Count what happens inside towards a phase."""
        before, self._inner = self._inner, 0.0
        start = self._now()
        yield
        spent = self._now() - start
        self.seconds[phase] += spent - self._inner
        self._inner = before + spent

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def record(
    number: int,
    measured: tuple[float, float, float],
    seconds: dict[str, float],
    outcome: Outcome,
    malicious: BoolVector,
    note: str,
) -> RoundRecord:
    """Return the record of a round, with scores in the order of its clients."""
    m = len(outcome.clients)
    kept = np.zeros(m, dtype=bool)
    kept[outcome.kept] = True
    scores, probabilities = np.full(m, np.nan), None
    if outcome.scores is not None:
        row = {client: i for i, client in enumerate(outcome.clients)}
        rows = np.array([row[c] for c in outcome.scores.clients], dtype=np.int64)
        scores[rows] = outcome.scores.values
        if outcome.scores.probabilities is not None:
            probabilities = np.full(m, np.nan)
            probabilities[rows] = outcome.scores.probabilities
    judged = scores[kept & ~np.isnan(scores)]
    threshold = float(judged.max()) if judged.size else float("nan")
    clients = tuple(int(c) for c in outcome.clients)
    return RoundRecord(
        number,
        *measured,
        seconds,
        clients,
        malicious,
        kept,
        scores,
        probabilities,
        threshold,
        outcome.unusable,
        note,
        {} if outcome.scores is None else outcome.scores.told(outcome.dropped),
    )
