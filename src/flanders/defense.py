"""The class `Defense`, which protects one round after the other.

It remembers what its filter and its aggregator need from one round to the next. The module `protection` has what
happens in a single round.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flanders.aggregators import Aggregator, Chain, FedAvg
from flanders.aggregators.aggregator import check_model
from flanders.arrays import Array, IntVector, copied
from flanders.callbacks import AnyCallback, Callbacks, RunInfo
from flanders.checks import InputError, check_instance
from flanders.client_ids import ClientId
from flanders.defense_state import DefenseState
from flanders.filters import Filter, Guard
from flanders.filters.filter import checked_rows, checked_scores
from flanders.linalg.products import usable_rows
from flanders.outcome import Outcome
from flanders.protection import NUMERICAL, Aggregate, defend
from flanders.record import RoundRecord
from flanders.round import Evaluate, Round, check_matrix, check_same_size
from flanders.state import load_state, save_state

log = logging.getLogger("flanders")

NO_LAYERS = (
    "The model's layers are not known, so Guard finds fewer attackers, above all in small rounds. If the model "
    "is a state_dict or a list of arrays, pass layers=layers_of(it). If it has one layer, pass layers={'all': %d}."
)


class Defense:
    """A filter and an aggregator in one object. It remembers what they need from one round to the next.

    Parameters
    ----------
    filter
        Decides which clients to keep. Default: `Guard()`. You need not tell it the number of attackers.
    aggregator
        Turns the kept models into one model. Default: `FedAvg()`, the weighted average.
    fallback
        The aggregator for rounds in which the filter knows too little to judge, usually only the first round.
        Default: `aggregator`. Choose a robust aggregator if clients may be malicious from the start.
    evaluate
        A function that takes a model as a vector and returns the model's losses on examples of the server; see
        `Round`. Some filters use this function to decide better, above all if most clients are malicious.
    seed
        Makes the randomness of the filter and of the aggregators repeatable. Leave it out in production, since an
        attacker who can predict the randomness can evade the filter.
    streams
        Two random generators in place of `seed`: one for the filter, and one for the aggregators.
    callbacks
        Functions that are called with the `RoundRecord` of each round, or objects with a method `on_round(record)`,
        such as those of `flanders.callbacks`.

    Examples
    --------
    >>> from flanders import Defense, DistanceToGlobal, Median
    >>> defense = Defense(DistanceToGlobal(keep=3), Median())
    >>> outcome = defense(np.array([[1., 2.], [50., 60.], [1., 4.], [2., 2.]]))
    >>> outcome.dropped, outcome.model
    ((1,), array([1., 2.]))
    """

    def __init__(
        self,
        filter: Filter[Any] | None = None,
        aggregator: Aggregator | None = None,
        *,
        fallback: Aggregator | None = None,
        evaluate: Evaluate | None = None,
        seed: int | None = None,
        streams: tuple[np.random.Generator, np.random.Generator] | None = None,
        callbacks: Iterable[AnyCallback] = (),
    ) -> None:
        self.filter: Filter[Any] = Guard() if filter is None else filter
        self.aggregator = FedAvg() if aggregator is None else aggregator
        self.fallback, self.evaluate = fallback, evaluate
        check_instance("Defense", "filter", self.filter, Filter, "Flanders(keep=0.8)")
        check_instance("Defense", "aggregator", self.aggregator, Aggregator, "Median()")
        check_instance("Defense", "fallback", fallback, Aggregator, "Median()", optional=True)
        filter_rng, self._rng = np.random.default_rng(seed).spawn(2) if streams is None else streams
        self.state: Any = self.filter.init(filter_rng)
        self._name = described(self.filter)
        self._model: Array = None
        self._rounds, self._callbacks = 0, Callbacks("Defense", callbacks)
        self._aggregation: dict[str, object] = {}
        self._loaded: str | None = None  # the file that the memory came from; None after the next round

    def __call__(
        self,
        updates: Array,
        clients: Iterable[ClientId] | None = None,
        weights: Iterable[float] | None = None,
        *,
        global_model: Array = None,
        root: Array = None,
        layers: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Protect one round and remember it; see `Round` for the arguments.

        `global_model` is the model that the round started from. Default: what the last call returned, or zeros.
        Pass `layers` if you can: without it, `Guard` finds fewer attackers, and the first call logs a warning.
        If clients have different numbers of examples, pass these as `weights`. Otherwise `Guard` may drop
        clients with more examples, since their updates are longer.
        """
        xp, _ = check_matrix(updates)
        if layers is None and self._model is None and isinstance(self.filter, Guard):
            log.warning(NO_LAYERS, updates.shape[1])
        if self._model is not None:
            check_same_size(updates, self._model)
            global_model = xp.asarray(self._model) if global_model is None else global_model
        names = () if clients is None else tuple(clients)
        outcome = self.step(Round(updates, names, weights, global_model, root, layers, self.evaluate))
        self._model = copied(outcome.model)
        return outcome

    def step(self, round_: Round, aggregate: Aggregate | None = None, fallback: Aggregate | None = None) -> Outcome:
        """Protect one round and remember it. A round that raises an error is not remembered.

        `aggregate` and `fallback` take the indices of the kept rows and return the new model. The Flower wrapper
        passes these functions. The aggregators of this object are then not used.
        """
        before = self._aggregation
        if aggregate is None:
            aggregate = self._aggregate_with(self.aggregator, round_)
            fallback = None if self.fallback is None else self._aggregate_with(self.fallback, round_)
        try:
            outcome = defend(self.filter, self.state, round_, aggregate, fallback)
        except Exception as error:
            self._aggregation = before
            if self._loaded is None or isinstance(error, InputError):
                raise
            raise InputError(
                f"The memory in {self._loaded} does not fit this round ({type(error).__name__}: {error}). Load "
                "another file, or start with an empty memory."
            ) from error
        self._loaded = None
        self.state, self._rounds = outcome.state, self._rounds + 1
        if self._callbacks:
            settings = {"filter": self._name, "aggregator": repr(self.aggregator)}
            self._callbacks.start(RunInfo(type(self.filter).__name__, settings=settings))
            record = RoundRecord(self._rounds, outcome.clients, outcome.note)
            self._callbacks.tell(replace(record, stayed=outcome.stayed, widening=outcome.widening))
        return outcome

    def aggregate(self, aggregator: Aggregator, round_: Round, rows: IntVector) -> Array:
        """Return the model that an aggregator makes of some rows of a round. Store the aggregator's memory."""
        name = memory_key(aggregator)
        model, memory = aggregator.step(self._aggregation.get(name), round_.take(rows), self._rng)
        check_model(aggregator, model, round_)
        if memory is not None:
            self._aggregation = {**self._aggregation, name: memory}
        return model

    def preview(self, round_: Round, rng: np.random.Generator) -> Array:
        """Return the model that this object would make of a round, without remembering the round.

        In the simulator, attackers who know the server's defense use this method to try out an attack. Aggregators
        draw their random numbers from `rng`. Unlike `step`, this method never uses `fallback`. If the filter gives
        no scores, this method aggregates all usable rows.
        """
        seen = round_.take(np.flatnonzero(usable_rows(round_.updates)))
        try:
            scores = checked_scores(self.filter, self.filter.score(self.state, seen), seen)
        except NUMERICAL:
            return copied(round_.global_model)
        m = len(seen.clients)
        kept = np.arange(m) if scores is None else checked_rows(self.filter, self.filter.select(scores), m)
        if kept.size == 0:
            return copied(round_.global_model)
        memory = self._aggregation.get(memory_key(self.aggregator))
        return self.aggregator.step(memory, seen.take(kept), rng)[0]

    def _aggregate_with(self, aggregator: Aggregator, round_: Round) -> Aggregate:
        return lambda rows: self.aggregate(aggregator, round_, rows)

    @property
    def memory(self) -> DefenseState:
        """Everything that this object remembers, in a form that can be saved."""
        generator = dict(self._rng.bit_generator.state)
        return DefenseState(self._name, self.state, self._model, generator, self._aggregation, self._rounds)

    @memory.setter
    def memory(self, saved: DefenseState) -> None:
        saved.check(self.filter, self._name, self.state, self._rng)
        self._rng.bit_generator.state = saved.generator  # the checks are done: no line from here on fails
        self.state, self._model, self._rounds = saved.memory, saved.model, saved.rounds
        self._aggregation = saved.aggregation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that this object remembers to a file."""
        save_state(path, self.memory)

    def load(self, path: str | os.PathLike[str], like: Array = None) -> None:
        """Continue from the memory in a file that `save` wrote. `load_state` explains `like`."""
        saved = load_state(path, like)
        if not isinstance(saved, DefenseState):
            raise InputError(
                f"{path} does not hold the memory of a Defense. Load a file that `Defense.save` wrote."
            )
        try:
            self.memory = saved
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        self._loaded = str(path)

    def __repr__(self) -> str:
        return f"Defense({self.filter}, {self.aggregator}, fallback={self.fallback})"


def memory_key(aggregator: Aggregator) -> str:
    """Return the key in `DefenseState.aggregation`: the class names of an aggregator and its pre-aggregators."""
    if isinstance(aggregator, Chain):
        return f"{type(aggregator.first).__name__}+{memory_key(aggregator.then)}"
    return type(aggregator).__name__


def described(filter: Filter[Any]) -> str:
    """Return the class of a filter with its parameters, as text that is the same in every process."""
    return repr(filter) if dataclasses.is_dataclass(filter) else type(filter).__qualname__
