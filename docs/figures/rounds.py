"""Simulated rounds, together with what the filter saw in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flanders.arrays import Array, BoolVector, FloatMatrix, IntVector
from flanders.filters import Filter, Scores
from flanders.record import RoundRecord
from flanders.round import Round
from flanders.simulation import Setting, Simulation


@dataclass(frozen=True)
class Watched(Filter[Any]):
    """Another filter, and the rounds that it has seen."""

    filter: Filter[Any]
    rounds: list[Round] = field(default_factory=list)

    def init(self, rng: np.random.Generator | None = None) -> Any:
        """Return the filter's own memory."""
        return self.filter.init(rng)

    def score(self, state: Any, round_: Round) -> Scores | None:
        """Take down the round, and let the filter judge it."""
        self.rounds.append(round_)
        return self.filter.score(state, round_)

    def select(self, scores: Scores) -> IntVector:
        """Keep the clients that the filter keeps."""
        return self.filter.select(scores)

    def amend(self, state: Any, round_: Round, kept: IntVector, model: Array, scores: Scores | None = None) -> Any:
        """Return the filter's own memory after the round."""
        return self.filter.amend(state, round_, kept, model, scores)

    def visible_columns(self, state: Any, d: int, layers: Mapping[str, int] | None = None) -> IntVector | None:
        """Return the parameters that the filter looks at."""
        return self.filter.visible_columns(state, d, layers)


@dataclass(frozen=True)
class Seen:
    """One round: what the clients sent, and what became of it."""

    round: Round
    record: RoundRecord

    @property
    def malicious(self) -> BoolVector:
        """Which rows are poison."""
        return np.array([bool(client.malicious) for client in self.record.clients])

    @property
    def kept(self) -> BoolVector:
        """Which rows the filter kept."""
        return np.array([client.kept for client in self.record.clients])

    @property
    def steps(self) -> FloatMatrix:
        """What each client changed in the global model."""
        updates, model = np.asarray(self.round.updates), np.asarray(self.round.global_model)
        return updates.astype(np.float64) - model

    @property
    def last_layer(self) -> int:
        """The number of parameters in the last layer."""
        return sum(list(self.round.layers.values())[-2:]) if self.round.layers else self.steps.shape[1]


def simulate(setting: Setting) -> list[Seen]:
    """Carry out all rounds of a setting."""
    watched = Watched(setting.filter)
    records = list(Simulation(replace(setting, filter=watched)).run())
    return [Seen(round_, record) for round_, record in zip(watched.rounds, records, strict=True)]
