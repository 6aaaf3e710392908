"""The class `FlowerSimulation`: a simulated run on Flower. `flanders run --engine flower` uses it.

The clients train on Flower's nodes, with the same data and the same random numbers as in the simulator. Then the
simulated attacker replaces the models of the malicious clients. `FilteredStrategy` gets all models as replies of
Flower, and filters and aggregates them as in a real deployment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord
from torch import Tensor

from flanders.checks import InputError
from flanders.data import Dataset
from flanders.defense import Defense
from flanders.filters import Oracle
from flanders.flower.engine.client_app import make_client_app
from flanders.flower.engine.node_trainer import NodeTrainer
from flanders.flower.engine.received_grid import ReceivedGrid
from flanders.flower.engine.runtime import Runtime, ray_runtime
from flanders.flower.engine.simulator_strategy import SimulatorStrategy
from flanders.flower.engine.world_test import WorldTest
from flanders.flower.strategy import FilteredStrategy
from flanders.flower.weight_limits import WeightLimits
from flanders.record import RoundRecord
from flanders.simulation import ClientTrainer, Received, Setting, World
from flanders.simulation.clock import Clock
from flanders.simulation.evaluation import Tested
from flanders.simulation.resuming import restore, state_of
from flanders.simulation.thread_limits import one_blas_thread
from flanders.simulation.training.trainer import exact

FORMAT = "flower-1"
"""The version of the saved state. A state of another version is refused."""


class FlowerSimulation:
    """A simulation whose clients train on Flower's nodes and whose server is a `FilteredStrategy`.

    Parameters
    ----------
    setting
        What to simulate. The nodes load the dataset themselves. With `device="cuda"`, each client that trains gets
        a whole GPU and a CPU core. Otherwise it gets only a CPU core.
    dataset
        The dataset of the setting, if it is loaded already. Default: it is loaded.
    runtime
        The function that starts and stops the nodes. Default: Flower's own simulation runtime, on Ray.

    Examples
    --------
    >>> from flanders.simulation import Federation
    >>> simulation = FlowerSimulation(Setting(federation=Federation(num_clients=10, rounds=3)))
    >>> for record in simulation.run():  # doctest: +SKIP
    ...     print(record.number, record.accuracy)
    """

    def __init__(self, setting: Setting, dataset: Dataset | None = None, *, runtime: Runtime = ray_runtime) -> None:
        poison = setting.threat.data_poison
        if poison is not None and poison.learns:
            raise InputError(
                f"The data poison {poison} learns in every round, which Flower's nodes cannot do. Run it in the "
                "simulator (`--engine simulator`), or choose a poison that does not learn."
            )
        attack = setting.threat.attack
        if attack is not None and attack.needs_rehearsal:
            raise InputError(
                f"The attack {attack} trains malicious clients twice, which Flower's nodes do not do. Run it in "
                "the simulator (`--engine simulator`), or choose another attack."
            )
        self.setting = setting
        self.world = World(setting, dataset)
        """What the simulation has before its first round: the clients' data, the model and the test."""
        self.model = self.world.layout.flatten(self.world.module)
        """The parameters of the global model, as one vector."""
        self.buffers = {name: b.detach().clone() for name, b in self.world.module.named_buffers()}
        """The buffers of the global model, such as the statistics of batch normalisation."""
        self.round_number = 0
        """The number of rounds that are done."""
        self.attacker = self.world.make_attacker()
        self.strategy = self._make_strategy()
        """The server."""
        self._runtime = runtime
        self._trainer: ClientTrainer | None = None

    def _make_strategy(self) -> FilteredStrategy:
        setting, streams, fallback = self.setting, self.world.streams, self.setting.fallback
        self._aggregation = SimulatorStrategy(setting.aggregator, self.world, informed=setting.informed)
        self._fallback = None if fallback is None else SimulatorStrategy(fallback, self.world)
        strategy = FilteredStrategy(
            self._aggregation,
            setting.filter,
            fallback=self._fallback,
            unscored=self.buffers.__contains__,
            identify=lambda node: node.node_id,
            limits=WeightLimits(times_median=None, newcomers=None),  # the simulator has no limits
        )
        strategy.strict = True
        strategy.server_test = WorldTest(self.world)
        strategy.defense = Defense(
            setting.filter, setting.aggregator, streams=(streams["filter"], streams["aggregator"])
        )
        for inner in (self._aggregation, self._fallback):
            if inner is not None:
                inner.defense = strategy.defense
        return strategy

    @property
    def defense(self) -> Defense:
        """The defense of the strategy: the filter and the aggregator, with their memories."""
        return self.strategy.defense

    @property
    def like(self) -> Tensor:
        """A tensor on the device of this simulation. Pass it to `load_state` as `like`."""
        return self.model

    def run(self) -> Iterator[RoundRecord]:
        """Start the nodes, carry out the remaining rounds one at a time, and stop the nodes."""
        device = self.world.device
        app = make_client_app(replace(self.setting, run=replace(self.setting.run, device=device.type)))
        num_clients = self.setting.federation.num_clients
        with self._runtime(app, num_clients, float(device.type == "cuda")) as link:
            self._trainer = NodeTrainer(link, self.world.layout, device)
            try:
                while self.round_number < self.setting.federation.rounds:
                    yield self.step()
            finally:
                self._trainer = None

    def step(self) -> RoundRecord:
        """Carry out the next round. `run` calls this method while the nodes are running."""
        if self._trainer is None:
            raise InputError("The rounds of a FlowerSimulation are carried out by `run()`, which starts its nodes.")
        world, clock, number = self.world, Clock(self.world.device), self.round_number + 1
        clients = world.select_clients()
        turn = self.attacker.begin(number, clients)
        with clock.timing("train"):
            seed = world.seed_of_round(number)
            trained = self._trainer.train(self.model, self.buffers, clients, seed, poisoned=turn.malicious)
        with clock.timing("attack"), one_blas_thread():
            weights = world.data.sizes[clients].astype(float)
            received = self.attacker.poison(turn, trained.updates, self.model, self.defense, weights)
        self._tell_the_truth(received)
        grid = ReceivedGrid(received, trained.buffers, world.data.sizes[clients], world.layout)
        with one_blas_thread():
            self._protect(number, grid)
        self.round_number = number
        with clock.timing("evaluate"), exact(world.device, 0):
            tested = world.evaluator.evaluate(self.model, self.buffers)
        return self._record(received, tested, clock.seconds)

    def _tell_the_truth(self, received: Received) -> None:
        """Give the filter `Oracle` and the aggregators what only a simulation knows: which clients are malicious.

        `Oracle` is the perfect filter that other filters are compared with. An aggregator uses the knowledge only
        if it is informed: see `SimulatorStrategy`.
        """
        for strategy in (self._aggregation, self._fallback):
            if strategy is not None:
                strategy.received = received
        if isinstance(self.setting.filter, Oracle):
            self.defense.filter = Oracle(tuple(received.clients[received.malicious].tolist()))

    def _protect(self, number: int, grid: ReceivedGrid) -> None:
        """Let the strategy filter and aggregate the replies of the clients."""
        layout, device = self.world.layout, self.world.device
        tensors = {**layout.unflatten(self.model), **self.buffers}
        before = ArrayRecord({name: tensor.cpu() for name, tensor in tensors.items()})
        messages = self.strategy.configure_train(number, before, ConfigRecord(), grid)
        after, _ = self.strategy.aggregate_train(number, grid.send_and_receive(messages))
        if after is not None:
            new = {name: tensor.to(device) for name, tensor in after.to_torch_state_dict().items()}
            self.model = layout.flatten(new)
            self.buffers = {name: new[name] for name in self.buffers}

    def _record(self, received: Received, tested: Tested, seconds: Mapping[str, float]) -> RoundRecord:
        """Return the strategy's record of the round, completed with what only a simulation knows."""
        decided = self.strategy.last_round
        if decided is None:
            raise RuntimeError("FilteredStrategy has no record of the round")
        by_client = {record.client: record for record in decided.clients}
        clients = tuple(
            replace(by_client[client], malicious=malicious)
            for client, malicious in zip(received.clients.tolist(), received.malicious.tolist(), strict=True)
        )
        record = replace(decided, clients=clients, seconds={**decided.seconds, **seconds})
        return replace(record, **tested._asdict())

    def state_dict(self) -> dict[str, object]:
        """Return everything that is needed to continue with exactly the same results.

        `flanders.state.save_state` can save it.
        """
        return state_of(self, FORMAT)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same setting.

        To read the state from a file, call `load_state(path, like=simulation.like)`.
        """
        restore(self, state, FORMAT)
