"""The class `SimulatorStrategy`: a Flower strategy that aggregates exactly as the simulator does.

The Flower engine carries out simulated runs on Flower's nodes. In such a run, `FilteredStrategy` wraps this
strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import ArrayRecord

from flanders.aggregators import Aggregator
from flanders.arrays import FloatVector, to_numpy
from flanders.defense import Defense
from flanders.flower.aggregator_strategy import AggregatorStrategy
from flanders.flower.engine.world_test import WorldTest
from flanders.flower.model_arrays import ModelArrays
from flanders.hosts.model_arrays import Numbers, Vector
from flanders.round import Round
from flanders.simulation import Received, World
from flanders.simulation.simulation import averaged, informed


class SimulatorStrategy(AggregatorStrategy):
    """Aggregate with PyTorch, with the clients in the simulator's order. The results equal the simulator's exactly.

    Parameters
    ----------
    aggregator
        The aggregator.
    world
        What the simulation has before its first round, such as the device and the random generators.
    informed
        Whether to tell the aggregator how many of the kept clients are malicious. No real server knows this.
    """

    def __init__(self, aggregator: Aggregator, world: World, *, informed: bool = False) -> None:
        buffers = frozenset(name for name, _ in world.module.named_buffers())
        super().__init__(
            aggregator,
            seed=world.streams["aggregator"],
            unscored=buffers.__contains__,
            min_train_nodes=1,
            min_evaluate_nodes=1,
            min_available_nodes=1,
        )
        self.device, self.informed = world.device, informed
        self._server_test = WorldTest(world)
        self.defense: Defense | None = None
        """The defense of the `FilteredStrategy`. It holds the memory and the random generator of the aggregator."""
        self.received: Received | None = None
        """The clients of this round, their models, and which of them are malicious."""

    def server_step(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Vector | None:
        """Return the model that the simulated server trains, minus the global model; None if it is not needed."""
        return self._server_test.step(number, model, arrays) if self.aggregator.needs_root else None

    def aggregate_round(self, round_: Round) -> Vector:
        """Return the aggregate of the kept clients as a flat vector."""
        aggregator = self.aggregator
        if self.received is not None:
            row_of = {client: row for row, client in enumerate(self.received.clients.tolist())}
            rows = [row_of[client] for client in round_.clients]
            round_ = round_.take(np.argsort(rows))
            if self.informed:
                aggregator = informed(aggregator, int(self.received.malicious[rows].sum()))
        on_device = Round(
            torch.from_numpy(round_.updates).to(self.device),
            round_.clients,
            round_.weights,
            torch.from_numpy(round_.global_model).to(self.device),
            None if round_.root is None else torch.from_numpy(round_.root).to(self.device),
            round_.layers,
        )
        if self.defense is None:
            raise RuntimeError("SimulatorStrategy.defense is not set")
        return to_numpy(self.defense.aggregate(aggregator, on_device, np.arange(len(on_device.clients))))

    def average(self, before: Numbers, several: Sequence[Numbers], weights: FloatVector) -> Numbers:
        """Return the weighted average of a buffer, computed as in the simulator."""
        old, new = {"": torch.from_numpy(before)}, {"": torch.from_numpy(np.stack(several))}
        return to_numpy(averaged(old, new, np.arange(len(several)), weights)[""])
