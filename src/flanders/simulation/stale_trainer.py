"""A trainer for late clients, which start from the global model of an earlier round.

It simulates asynchronous rounds, in which the server does not wait for slow clients.
"""

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

    The step of a client is the change that its training makes to the model. In each round, the age of the model
    that a client starts from is drawn at random, from 0 to `max_age` rounds. A client's weight in the average does
    not depend on this age.

    The last `max_age + 1` global models are stored in memory. In the first rounds there are not yet so many, and
    the age is at most that of the oldest one. The stored models are not part of a simulation's saved state, so a
    resumed simulation does not continue with the same results.

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
        """Train these clients. `model` is the newest global model.

        Each row of the result is `model` plus the step of a client. The step is the client's trained model minus
        the model that the client started from.
        """
        self._starts.appendleft((model.clone(), {name: buffer.clone() for name, buffer in buffers.items()}))
        ids, malicious = np.asarray(clients), np.asarray(poisoned, dtype=bool)
        malicious = malicious if malicious.size else np.zeros(ids.size, dtype=bool)
        ages = np.random.default_rng([seed, 1]).integers(0, len(self._starts), size=ids.size)
        updates = model.new_empty((ids.size, model.shape[0]))
        new_buffers = {name: buffer.new_empty((ids.size, *buffer.shape)) for name, buffer in buffers.items()}
        for age in np.unique(ages):
            rows = np.flatnonzero(ages == age)
            start, start_buffers = self._starts[age]
            trained = self.trainer.train(
                start, start_buffers, ids[rows], seed, poisoner=poisoner, poisoned=malicious[rows]
            )
            places = torch.from_numpy(rows).to(model.device)
            updates[places] = trained.updates if age == 0 else model + (trained.updates - start)
            for name, values in trained.buffers.items():
                new_buffers[name][places] = values
        return Trained(updates, new_buffers)
