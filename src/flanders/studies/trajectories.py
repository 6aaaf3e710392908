"""The models that one honest and one malicious client send in each round.

A filter that knows the malicious clients drops them, so the global model stays clean. This is the setting of
Section 4.2 of the FLANDERS paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flanders.arrays import Array, FloatMatrix, FloatVector, IntVector, to_numpy
from flanders.checks import InputError
from flanders.data import Dataset
from flanders.filters import Filter, Scores
from flanders.round import Round
from flanders.simulation import Setting, Simulation


@dataclass(frozen=True, eq=False)
class Trajectories:
    """What two clients sent, `(T, d)` each, and the global models they started from."""

    honest: FloatMatrix
    malicious: FloatMatrix
    global_models: FloatMatrix

    def displacements(self) -> Trajectories:
        """Return both trajectories as displacements from the global models."""
        g = self.global_models
        return Trajectories(self.honest - g, self.malicious - g, g)


@dataclass(frozen=True)
class Listener(Filter[tuple[FloatMatrix, ...]]):
    """A filter for studies. It knows and drops the malicious clients, and records what two clients send."""

    malicious: frozenset[int]
    watched: tuple[int, int]

    def init(self, rng: np.random.Generator | None = None) -> tuple[FloatMatrix, ...]:
        """Return an empty record."""
        return ()

    def score(self, state: tuple[FloatMatrix, ...], round_: Round) -> Scores | None:
        """Score the malicious 1 and the honest 0."""
        return Scores(round_.clients, np.array([float(c in self.malicious) for c in round_.clients]))

    def select(self, scores: Scores) -> IntVector:
        """Keep the honest."""
        return np.flatnonzero(scores.values == 0)

    def amend(
        self,
        state: tuple[FloatMatrix, ...],
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> tuple[FloatMatrix, ...]:
        """Record the global model and the two clients' models."""
        rows = [round_.updates[round_.clients.index(c), :] for c in self.watched]
        return (*state, np.stack([numbers(row) for row in (round_.global_model, *rows)]))


def follow(setting: Setting, dataset: Dataset | None = None) -> Trajectories:
    """Run a federation whose filter knows the malicious clients. Return what the first client of each kind sent.

    All clients must be selected, and the attacker's clients must be the same in all rounds.
    """
    k, b, selected = setting.federation.num_clients, setting.num_malicious, setting.federation.selected
    rotating = setting.threat.rotating
    if rotating or selected < k or not 0 < b < k:
        raise InputError(
            "To follow an honest and a malicious client through all rounds, there must be clients of both kinds, "
            "all clients must be selected, and the malicious ones must stay the same (rotating=False). Got "
            f"{b} of {k} malicious, {selected} selected, rotating={rotating}."
        )
    bad = frozenset(setting.streams()["attacker"].choice(k, b, replace=False).tolist())
    watched = min(set(range(k)) - bad), min(bad)
    simulation = Simulation(replace(setting, filter=Listener(bad, watched)), dataset)
    for record in simulation.run():
        truth = {client.client for client in record.clients if client.malicious}
        if truth != bad:  # the simulator has drawn other attackers than this study expects
            raise RuntimeError(f"round {record.number}: {truth} are malicious, not {sorted(bad)}")
    g, honest, malicious = np.stack(simulation.defense.state, axis=1)
    return Trajectories(honest, malicious, g)


def numbers(array: Array) -> FloatVector:
    """Return an array as float64 on the host."""
    return np.asarray(to_numpy(array), dtype=np.float64)
