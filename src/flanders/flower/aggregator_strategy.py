"""The class `AggregatorStrategy`: a Flower strategy that aggregates with an aggregator of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from logging import WARNING

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from flanders.aggregators import Aggregator
from flanders.arrays import FloatVector
from flanders.checks import InputError
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.parameter_checks import check_function, check_part
from flanders.flower.replies import array_record
from flanders.flower.reply_metrics import align_records, check_metrics, claim_of
from flanders.hosts.averages import average
from flanders.hosts.model_arrays import BadReply, Numbers, Vector, is_buffer
from flanders.round import Round

ME = "AggregatorStrategy"


class AggregatorStrategy(FedAvg):
    """Aggregate the replies of a round with an aggregator of `flanders.aggregators`.

    Clients are chosen and metrics are averaged as in Flower's `FedAvg`. The weight of a client in an average is the
    metric `weighted_by_key` of its reply, by default its number of examples. The aggregator gets the float arrays
    of a model as one vector. Integer arrays and the arrays that `unscored` selects are not part of this vector:
    they are averaged. Some aggregators remember earlier rounds. They lose this memory when the ServerApp is started
    again.

    Parameters
    ----------
    aggregator
        The aggregator, with or without pre-aggregators, e.g. `MultiKrum(num_malicious=2)` or `Nnm(2) | Median()`.
    train_fn
        A function that trains the global model on examples of the server. It takes the number of the round and the
        arrays of the global model, and returns the arrays of the trained model. The aggregator `FLTrust` needs it.
    seed
        Makes the randomness of the aggregator repeatable: a whole number, or a random generator of NumPy.
    unscored
        A function that takes the name of a float array and returns True if this array is to be averaged and not
        passed to the aggregator. Default: it selects the buffers of batch normalisation.
    fraction_train, fraction_evaluate, min_train_nodes, min_evaluate_nodes, min_available_nodes, weighted_by_key
        The same as in `flwr.serverapp.strategy.FedAvg`.

    Examples
    --------
    >>> from flanders.aggregators import MultiKrum
    >>> from flanders.flower import FilteredStrategy
    >>> strategy = FilteredStrategy(AggregatorStrategy(MultiKrum(num_malicious=2)))
    """

    def __init__(
        self,
        aggregator: Aggregator,
        *,
        train_fn: Callable[[int, ArrayRecord], ArrayRecord] | None = None,
        seed: int | np.random.Generator | None = None,
        unscored: Callable[[str], bool] = is_buffer,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_train_nodes: int = 2,
        min_evaluate_nodes: int = 2,
        min_available_nodes: int = 2,
        weighted_by_key: str = "num-examples",
    ) -> None:
        check_part(ME, "aggregator", aggregator, Aggregator)
        check_function(ME, "unscored", unscored)
        if train_fn is not None:
            check_function(ME, "train_fn", train_fn)
        elif aggregator.needs_root and type(self) is AggregatorStrategy:  # a subclass may override `server_step`
            raise InputError(f"{aggregator} needs a model that the server trains itself. Pass `train_fn`.")
        super().__init__(
            fraction_train,
            fraction_evaluate,
            min_train_nodes,
            min_evaluate_nodes,
            min_available_nodes,
            weighted_by_key,
        )
        self.aggregator, self.train_fn, self.unscored = aggregator, train_fn, unscored
        self.rng = np.random.default_rng(seed)
        self.memory: object = None
        """What the aggregator remembers of earlier rounds; None if it remembers nothing."""
        self._before: ArrayRecord | None = None

    def begin_round(self, arrays: ArrayRecord) -> None:
        """Remember the global model that the round starts from. Some aggregators compare the replies with it."""
        self._before = arrays

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Choose clients as `FedAvg` does."""
        self.begin_round(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate the models of the replies with the aggregator, and average their metrics by weight.

        A reply that cannot be used is left out.
        """
        received, _ = self._check_and_log_replies(replies, is_train=True, validate=False)
        if not received:
            return None, None
        if self._before is None:
            raise InputError(
                f"{ME} needs the global model that the round starts from. Call `configure_train` or `begin_round` "
                "before `aggregate_train`."
            )
        before = self._before
        model = ModelArrays.of(before, self.unscored)
        usable, numbers = self._readable(received, model)
        if not usable:
            return None, None
        align_records(usable)
        float_type = model.float_type(before)
        rows = np.empty((len(usable), model.size), dtype=float_type)
        for row, arrays in zip(rows, numbers, strict=True):
            for array in model.arrays:
                if array.scored:
                    row[array.columns] = arrays[array.name].ravel()
        weights = np.array([claim_of(message, self.weighted_by_key) for message in usable])
        round_ = Round(
            rows,
            tuple(message.metadata.src_node_id for message in usable),
            weights,
            model.flatten(before, float_type),
            self.server_step(server_round, model, before),
            model.layers,
        )
        new = model.unflatten(self.aggregate_round(round_), before)
        for array in model.arrays:
            if not array.scored:
                several = [arrays[array.name] for arrays in numbers]
                new[array.name] = Array(self.average(before[array.name].numpy(), several, weights))
        return new, self.train_metrics_aggr_fn([message.content for message in usable], self.weighted_by_key)

    def _readable(
        self, received: Iterable[Message], model: ModelArrays
    ) -> tuple[list[Message], list[dict[str, Numbers]]]:
        """Return the replies that can be used, and the values of their arrays, by the name of the array."""
        usable, numbers = [], []
        # Flower samples nodes in random order. The rounding of sums depends on the order, so replies are sorted.
        for message in sorted(received, key=lambda message: message.metadata.src_node_id):
            try:
                check_metrics(message, (self.weighted_by_key,), None)
                record = array_record(message, model)
                numbers.append({array.name: array.decode(record[array.name]) for array in model.arrays})
                usable.append(message)
            except BadReply as why:
                log(WARNING, "flanders: refused what node %s sent: %s", message.metadata.src_node_id, why)
        return usable, numbers

    def server_step(self, number: int, model: ModelArrays, arrays: ArrayRecord) -> Vector | None:
        """Return the model that `train_fn` trains, minus the global model; None if there is no `train_fn`."""
        if self.train_fn is None:
            return None
        trained, float_type = self.train_fn(number, arrays), model.float_type(arrays)
        if difference := model.difference(trained):
            raise InputError(f"The `train_fn` of {ME} returned a model with other arrays ({difference}).")
        step: Vector = model.flatten(trained, float_type) - model.flatten(arrays, float_type)
        return step

    def aggregate_round(self, round_: Round) -> Vector:
        """Return the new global model as a flat vector. The clients in `round_` are named by their node ids."""
        vector: Vector
        vector, self.memory = self.aggregator.step(self.memory, round_, self.rng)
        return vector

    def average(self, before: Numbers, several: Sequence[Numbers], weights: FloatVector) -> Numbers:
        """Return the weighted average of several clients' versions of one array of the model.

        `before` is this array in the global model.
        """
        return average(before, several, weights)
