"""The class `Simulation`, which carries out a federation round by round.

It follows Algorithm 1 of the FLANDERS paper, but with any filter, aggregator and attack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flanders.aggregators import Aggregator
from flanders.arrays import BoolVector, FloatVector, IntVector, all_finite
from flanders.attacks.attack import Rehearsal
from flanders.callbacks import AnyCallback, Callbacks, RunInfo
from flanders.data import Dataset
from flanders.defense import Defense
from flanders.filters import Oracle
from flanders.record import STAYS, RoundRecord
from flanders.round import Round
from flanders.simulation.attacker import Attacker, Received, Turn
from flanders.simulation.clock import Clock
from flanders.simulation.resuming import restore, state_of
from flanders.simulation.setting import Setting
from flanders.simulation.thread_limits import one_blas_thread
from flanders.simulation.training.trainer import ClientTrainer, exact
from flanders.simulation.world import World

FORMAT = 2
"""The version of the saved state. It rises when the content of the state changes. A state of another version is
refused."""


class Simulation:
    """A federation that can be run, stopped, saved and continued.

    Parameters
    ----------
    setting
        What to simulate.
    dataset
        Data to use in place of the dataset that the setting names. `flanders.data.from_arrays` makes a dataset from
        arrays.
    trainer
        Trains the clients of a round. Default: a `Trainer`, which trains all of them at the same time in this
        process.
    attacker
        Controls the malicious clients. Default: an `Attacker` with the `threat` of the setting.
    callbacks
        Objects with a method `on_round(record)`, e.g. those of `flanders.callbacks`, or functions that take a
        record. Each is called after every round.

    Examples
    --------
    >>> from flanders.attacks import Gauss
    >>> from flanders.filters import Flanders
    >>> from flanders.simulation import Federation, Threat
    >>> federation, threat = Federation(num_clients=10, rounds=3), Threat(Gauss(), fraction=0.8, start=2)
    >>> setting = Setting(federation=federation, threat=threat, filter=Flanders(keep=0.2))
    >>> for record in Simulation(setting).run():
    ...     print(record.number, record.malicious.sum(), (record.malicious & record.kept).sum())
    1 0 0
    2 8 0
    3 8 0
    """

    def __init__(
        self,
        setting: Setting,
        dataset: Dataset | None = None,
        *,
        trainer: ClientTrainer | None = None,
        attacker: Attacker | None = None,
        callbacks: Iterable[AnyCallback] = (),
    ) -> None:
        self.setting = setting
        self._callbacks = Callbacks("Simulation", callbacks)
        self.world = World(setting, dataset)
        """The data, the model and the test examples."""
        self.model = self.world.layout.flatten(self.world.module)
        """The global model as a vector of its d parameters, `(d,)`."""
        self.buffers = {name: b.detach().clone() for name, b in self.world.module.named_buffers()}
        """The global model's buffers: tensors that are not trained, e.g. the statistics of batch normalisation."""
        self.round_number = 0
        """How many rounds are done."""
        self.trainer = self.world.make_trainer() if trainer is None else trainer
        self.attacker = self.world.make_attacker() if attacker is None else attacker
        streams = self.world.streams["filter"], self.world.streams["aggregator"]
        self.defense = Defense(setting.filter, setting.aggregator, fallback=setting.fallback, streams=streams)
        """The filter and the aggregator, with what they remember."""

    @property
    def like(self) -> Tensor:
        """A tensor on the device of this simulation. Pass it to `load_state` as `like`."""
        return self.model

    def run(self) -> Iterator[RoundRecord]:
        """Carry out the remaining rounds. Yield the record of each round."""
        try:
            while self.round_number < self.setting.federation.rounds:
                yield self.step()
        finally:
            self._callbacks.end()

    def step(self) -> RoundRecord:
        """Carry out the next round, pass its record to the callbacks, and return it."""
        parts = {part.name: repr(getattr(self.setting, part.name)) for part in fields(self.setting)}
        self._callbacks.start(RunInfo("simulation", settings=parts))
        record = self._step()
        self._callbacks.tell(record)
        return record

    def _step(self) -> RoundRecord:
        world, clock, number = self.world, Clock(self.world.device), self.round_number + 1
        clients = world.select_clients()
        turn = self.attacker.begin(number, clients)
        with clock.timing("attack"):
            world.learn(self.model, self.buffers, clients[turn.malicious])
            world.freeze(self.attacker.frozen(turn, self.model))
        with clock.timing("train"):
            trained = self.trainer.train(
                self.model,
                self.buffers,
                clients,
                world.seed_of_round(number),
                poisoner=world.poisoner,
                poisoned=turn.malicious,
            )
        weights = world.data.sizes[clients].astype(float)
        with clock.timing("attack"):
            rehearsal = self._rehearse(turn)
        with clock.timing("attack"), one_blas_thread():
            received = self.attacker.poison(turn, trained.updates, self.model, self.defense, weights, rehearsal)
        root, evaluate = None, None
        if world.server is not None:
            evaluate = world.server.evaluate(self.buffers)
            root = world.server.step(self.model, self.buffers, world.seed_of_round(number))
        names = tuple(received.clients.tolist())
        outputs = world.outputs(self.buffers)
        round_ = Round(received.updates, names, weights, self.model, root, world.layers, evaluate, outputs)
        aggregation = Aggregation(self, round_, clock)
        with clock.timing("filter"), one_blas_thread():
            self._tell_the_oracle(received)
            truth = received.malicious if self.setting.informed else None
            fallback = None if self.setting.fallback is None else aggregation.by(self.setting.fallback)
            outcome = self.defense.step(round_, aggregation.by(self.setting.aggregator, truth), fallback)
        with clock.timing("aggregate"):
            self.buffers = averaged(self.buffers, trained.buffers, outcome.kept, round_.weights)
        self.model, self.round_number = outcome.model, number
        with clock.timing("evaluate"), exact(world.device, 0):
            tested = world.evaluator.evaluate(self.model, self.buffers)
        pairs = zip(outcome.clients, received.malicious.tolist(), strict=True)
        client_records = tuple(replace(record, malicious=malicious) for record, malicious in pairs)
        note = "; ".join(note for note in (outcome.note, *aggregation.notes) if note)
        stayed = outcome.stayed or bool(aggregation.notes)
        record = RoundRecord(
            number, client_records, note, seconds=clock.seconds, stayed=stayed, widening=outcome.widening
        )
        return replace(record, **tested._asdict())

    def _rehearse(self, turn: Turn) -> Rehearsal | None:
        """Let the attacker's clients train on unpoisoned data. Return their models, and a test of the backdoor.

        Return None if the attack needs no rehearsal, or if there is no backdoor to test.
        """
        attack, world, own = self.setting.threat.attack, self.world, turn.clients[turn.controlled]
        if attack is None or not attack.needs_rehearsal or not turn.malicious.any():
            return None
        with exact(world.device, 0):
            success = world.attack_test(self.model, self.buffers, own)
        if success is None:
            return None
        clean = self.trainer.train(self.model, self.buffers, own, world.seed_of_round(turn.number))
        return Rehearsal(clean.updates, success, world.layers)

    def state_dict(self) -> dict[str, object]:
        """Return all that is needed to continue with the same results.

        `flanders.state.save_state` can save it to a file.
        """
        return state_of(self, FORMAT)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that a simulation of the same setting returned.

        To read a state from a file, call `flanders.state.load_state(path, like=simulation.like)`.
        """
        restore(self, state, FORMAT)

    def _tell_the_oracle(self, received: Received) -> None:
        """If the filter is the `Oracle`, tell it which clients are malicious. No other filter is told."""
        if isinstance(self.setting.filter, Oracle):
            self.defense.filter = Oracle(tuple(received.clients[received.malicious].tolist()))


class Aggregation:
    """Aggregates one round, and measures the time. If the result is not finite, the global model stays as it is."""

    def __init__(self, simulation: Simulation, round_: Round, clock: Clock) -> None:
        self._defense, self._round, self._clock = simulation.defense, round_, clock
        self._model = simulation.model
        self.notes: list[str] = []
        """A note for each result that was not finite."""

    def by(self, aggregator: Aggregator, truth: BoolVector | None = None) -> Callable[[IntVector], Tensor]:
        """Return a function that takes the indices of rows and aggregates these rows.

        If `truth` says which rows are malicious, the aggregator is told how many of the given rows are malicious.
        """

        def aggregate(rows: IntVector) -> Tensor:
            chosen = aggregator if truth is None else informed(aggregator, int(truth[rows].sum()))
            with self._clock.timing("aggregate"):
                model: Tensor = self._defense.aggregate(chosen, self._round, rows)
            if all_finite(model):
                return model
            self.notes.append(f"the aggregate was not finite: {STAYS}")
            return self._model

        return aggregate


def informed(aggregator: Aggregator, num_malicious: int) -> Aggregator:
    """Return a copy of an aggregator with another `num_malicious`."""
    assert is_dataclass(aggregator), f"{aggregator} has no parameter to set"
    return replace(aggregator, num_malicious=num_malicious)


def averaged(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], kept: IntVector, weights: FloatVector
) -> dict[str, Tensor]:
    """Return the weighted average of the kept clients' buffers.

    `before` has the buffers of the global model, and `after` the buffers of all clients after training. If a
    client's buffer is not finite, the client is left out of the average of this buffer. The differences from
    `before` are averaged, not the values. So a value that no client has changed stays exactly the same.
    """
    if kept.size == 0:
        return dict(before)
    new, device = {}, next((b.device for b in before.values()), None)
    chosen, shares = torch.from_numpy(kept).to(device), torch.from_numpy(weights[kept]).to(device)
    for name, old in before.items():
        start = old.flatten().double()
        rows = after[name][chosen].double().view(kept.size, -1)
        usable = torch.isfinite(rows).all(1)
        share = shares * usable
        changes = torch.where(usable[:, None], rows - start, 0.0)
        mean = start + (share / share.sum().clamp(min=1e-300)) @ changes  # without a usable row: the old values
        new[name] = (mean if old.is_floating_point() else mean.round()).to(old.dtype).view(old.shape)
    return new
