"""A trainer for late clients: they start from the global model of an earlier round, as in asynchronous rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from flanders.arrays import BoolVector, IntVector
from flanders.checks import check_number
from flanders.simulation.poisoning import Poisoner
from flanders.simulation.training.trainer import ClientTrainer, Trained


class StaleTrainer:
    """Train each client from a global model that is some rounds old, and add its step to the newest model.

    In each round, the age of the model that a client starts from is drawn for each client: from 0 to `max_age`
    rounds, or to the age of the first model if that is less. A client's weight in the average does not depend on
    this age. The last `max_age + 1` global models are stored in memory. They are not part of a simulation's saved
    state, so a resumed simulation does not continue with the same results.

    Parameters
    ----------
    trainer
        Trains all clients of a round that start from the same model.
    max_age
        The age of the oldest model that a client may start from, in rounds.

    Examples
    --------
    >>> from flanders.simulation import Federation, Setting, Simulation
    >>> setting = Setting(federation=Federation(num_clients=6, rounds=2))
    >>> simulation = Simulation(setting)
    >>> simulation.trainer = StaleTrainer(simulation.trainer, max_age=3)
    >>> [len(record.clients) for record in simulation.run()]
    [6, 6]
    """

    def __init__(self, trainer: ClientTrainer, max_age: int) -> None:
        check_number("StaleTrainer", "max_age", max_age, 0, whole=True)
        self.trainer = trainer
        self._starts: deque[tuple[Tensor, dict[str, Tensor]]] = deque(maxlen=max_age + 1)

    def train(
        self,
        model: Tensor,
        buffers: Mapping[str, Tensor],
        clients: Sequence[int] | IntVector,
        seed: int,
        *,
        poisoner: Poisoner | None = None,
        poisoned: Sequence[bool] | BoolVector = (),
    ) -> Trained:
        """Train these clients.

        Each row of the result is the newest model plus the step of a client: its trained model minus the model that
        it started from.
        """
        self._starts.appendleft((model.clone(), {name: buffer.clone() for name, buffer in buffers.items()}))
        ids, bad = np.asarray(clients), np.asarray(poisoned, dtype=bool)
        bad = bad if bad.size else np.zeros(ids.size, dtype=bool)
        ages = np.random.default_rng([seed, 1]).integers(0, len(self._starts), size=ids.size)
        updates = model.new_empty((ids.size, model.shape[0]))
        new = {name: buffer.new_empty((ids.size, *buffer.shape)) for name, buffer in buffers.items()}
        for age in np.unique(ages):
            rows = np.flatnonzero(ages == age)
            start, old = self._starts[age]
            trained = self.trainer.train(start, old, ids[rows], seed, poisoner=poisoner, poisoned=bad[rows])
            at = torch.from_numpy(rows).to(model.device)
            updates[at] = trained.updates if age == 0 else model + (trained.updates - start)
            for name, values in trained.buffers.items():
                new[name][at] = values
        return Trained(updates, new)
