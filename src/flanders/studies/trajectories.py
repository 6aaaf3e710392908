"""`follow`, which records the models that one honest and one malicious client send in each round of a simulation.

The study `predictability` uses this module. The simulation is the one of Section 4.2 of the FLANDERS paper: a
filter that knows the malicious clients drops them, so the global model is not poisoned.
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
    """The models that two clients sent, and the global models that they started from.

    Each array has a row for each round and a column for each parameter.
    """

    honest: FloatMatrix
    malicious: FloatMatrix
    global_models: FloatMatrix

    def displacements(self) -> Trajectories:
        """Return the models of both clients minus the global models of their rounds."""
        g = self.global_models
        return Trajectories(self.honest - g, self.malicious - g, g)


@dataclass(frozen=True)
class Listener(Filter[tuple[FloatMatrix, ...]]):
    """A filter that knows the malicious clients. It drops them, and records the models of two clients."""

    malicious: frozenset[int]
    watched: tuple[int, int]
    """The two clients whose models are recorded."""

    def init(self, rng: np.random.Generator | None = None) -> tuple[FloatMatrix, ...]:
        """Return an empty record."""
        return ()

    def score(self, state: tuple[FloatMatrix, ...], round_: Round) -> Scores | None:
        """Return the score 1 for malicious clients and 0 for honest clients."""
        return Scores(round_.clients, np.array([float(c in self.malicious) for c in round_.clients]))

    def select(self, scores: Scores) -> IntVector:
        """Keep the honest clients."""
        return np.flatnonzero(scores.values == 0)

    def amend(
        self,
        state: tuple[FloatMatrix, ...],
        round_: Round,
        kept: IntVector,
        model: Array,
        scores: Scores | None = None,
    ) -> tuple[FloatMatrix, ...]:
        """Record the global model and the models of the two clients."""
        rows = [round_.updates[round_.clients.index(c), :] for c in self.watched]
        return (*state, np.stack([numbers(row) for row in (round_.global_model, *rows)]))


def follow(setting: Setting, dataset: Dataset | None = None) -> Trajectories:
    """Run a simulation. Return what the first honest client and the first malicious client sent.

    `Listener` replaces the filter of the setting. All clients must take part in every round, and the malicious
    clients must be the same in all rounds.
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
        if truth != bad:  # the simulator has drawn other malicious clients than `bad`
            raise RuntimeError(f"round {record.number}: {truth} are malicious, not {sorted(bad)}")
    g, honest, malicious = np.stack(simulation.defense.state, axis=1)
    return Trajectories(honest, malicious, g)


def numbers(array: Array) -> FloatVector:
    """Return an array as a NumPy array of float64."""
    return np.asarray(to_numpy(array), dtype=np.float64)
