"""The class `FilteredLegacyStrategy`: a filter around a strategy of Flower's older interface.

The older interface is `flwr.server.strategy`. Its strategies are called legacy strategies here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from logging import ERROR, INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array
from flwr.common import EvaluateIns, EvaluateRes, FitIns, FitRes, Parameters, Scalar
from flwr.common.logger import log
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from flanders.arrays import IntVector
from flanders.callbacks import AnyCallback
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.filters import Filter, Guard
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.parameter_checks import check_part
from flanders.flower.round_report import filter_line
from flanders.flower.stored_arrays import NUMPY
from flanders.flower.weight_limits import DEFAULT_LIMITS, WeightLimits
from flanders.hosts.claimed_weights import MOST_EXAMPLES
from flanders.hosts.model_arrays import BadReply, Vector
from flanders.hosts.round_line import why
from flanders.record import STAYS
from flanders.round import Round

Fit = tuple[ClientProxy, FitRes]
"""A client, and the result of its training."""
Evaluation = tuple[ClientProxy, EvaluateRes]
"""A client, and the result of its evaluation."""


class FilteredLegacyStrategy(Strategy):
    """Let a filter drop suspicious results before a legacy strategy aggregates the rest.

    It checks and filters results, and logs what it drops. Unlike `FilteredStrategy`, it cannot save its state, ban
    clients, write a results file, or use sketches. (A sketch is a short vector in place of a model.) Clients are
    identified by Flower's `cid`. The filter looks at all arrays of floats, also at the buffers of batch
    normalisation. In the older interface arrays have no names, so buffers cannot be recognised.

    Parameters
    ----------
    strategy
        A strategy of `flwr.server.strategy`, e.g. `FedAvg()`.
    filter, seed, callbacks
        The same as in `FilteredStrategy`. The records that callbacks get have no accuracy and no loss.
    limits
        The limits on the weight of each client. The limit `newcomers` has no effect here.
    """

    def __init__(
        self,
        strategy: Strategy,
        filter: Filter[Any] | None = None,
        *,
        limits: WeightLimits = DEFAULT_LIMITS,
        seed: int | None = None,
        callbacks: Iterable[AnyCallback] = (),
    ) -> None:
        filter = Guard() if filter is None else filter
        me = type(self).__name__
        check_part(me, "strategy", strategy, Strategy, example="flwr.server.strategy.FedAvg()")
        check_part(me, "filter", filter, Filter)
        check_part(me, "limits", limits, WeightLimits)
        rng = np.random.default_rng(seed)
        self.strategy, self.defense = strategy, Defense(filter, streams=(rng, rng), callbacks=callbacks)
        log(INFO, "flanders: filter %s", filter_line(filter))
        self._model: ModelArrays | None = None  # describes the arrays of the model; None before the first round
        self._sent: dict[str, Array] = {}  # the global model that the round started from
        self.limits, self._has_worked = limits, False
        self._kept: set[str] | None = None  # the clients kept in the last judged round; None if there is none

    @property
    def filter(self) -> Filter[Any]:
        """The filter."""
        return self.defense.filter

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Remember the global model, and let the strategy choose clients."""
        self._sent = named(parameters)
        if self._model is None:
            typed = {name: Array(array.numpy()) for name, array in self._sent.items()}
            self._model = ModelArrays.of(typed, unscored=lambda name: False)
        return self.strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(
        self, server_round: int, results: list[Fit], failures: list[Fit | BaseException]
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Let the strategy aggregate the results that the filter keeps."""
        model = self._model
        if model is None:
            raise InputError("`aggregate_fit` needs the global model. Call `configure_fit` first, as Flower does.")
        usable, rows = {}, {}
        for proxy, result in results:
            try:
                rows[proxy.cid], usable[proxy.cid] = read_result(model, result, self.limits.max_examples)
            except BadReply as problem:
                log(WARNING, "flanders: refused what %s sent: %s", proxy.cid, problem)
        proxies, names = {proxy.cid: proxy for proxy, _ in results}, sorted(usable)
        if not names:
            return None, {}
        weights = self.limits.capped([float(usable[name].num_examples) for name in names])
        for name, weight in zip(names, weights, strict=True):
            usable[name].num_examples = max(1, int(weight))
        before = model.flatten(self._sent)
        parameters: Parameters | None = None
        metrics: dict[str, Scalar] = {}

        def aggregate(kept: IntVector) -> Vector:
            nonlocal parameters, metrics
            chosen = [(proxies[names[row]], usable[names[row]]) for row in kept]
            parameters, metrics = self._aggregated(model, server_round, chosen, failures)
            return before if parameters is None else model.flatten(named(parameters))

        round_ = Round(np.stack([rows[name] for name in names]), tuple(names), np.array(weights), before)
        try:
            outcome = self.defense.step(round_, aggregate)
        except Exception as error:  # e.g. too few clients, or a mistake in a filter of the user's own
            if not isinstance(error, InputError) and not self._has_worked:
                raise
            log(WARNING, "flanders: round %s: the filter cannot judge it (%s): %s", server_round, error, STAYS)
            return None, {"flanders-kept": 0, "flanders-dropped": len(names)}
        if outcome.reasons:
            dropped = ", ".join(f"{client.client} [{why(client)}]" for client in outcome.clients if not client.kept)
            log(WARNING, "flanders: round %s: dropped %s", server_round, dropped)
        self._kept = {names[row] for row in outcome.kept}
        counts = {"flanders-kept": len(outcome.kept), "flanders-dropped": len(outcome.dropped)}
        return parameters, {**metrics, **counts}

    def _aggregated(
        self, model: ModelArrays, number: int, chosen: list[Fit], failures: list[Fit | BaseException]
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Let the strategy aggregate results. Return its model, in the types of the global model, and its metrics.

        The model is None if the strategy fails, or if its model cannot be used. If the strategy fails and has never
        worked before, its error is raised.
        """
        try:
            aggregate, metrics = self.strategy.aggregate_fit(number, chosen, failures)
        except Exception as error:  # a strategy is the user's own code and may raise anything
            if not self._has_worked:
                raise
            log(ERROR, "flanders: round %s: the strategy failed: %s", number, STAYS, exc_info=error)
            return None, {}
        self._has_worked = True
        if aggregate is None:
            return None, metrics
        arrays = {name: Array(array.numpy()) for name, array in named(aggregate).items()}
        difference = model.difference(arrays)
        converted = None if difference else model.in_own_types(arrays)
        if converted is None or not np.isfinite(model.flatten(converted)).all():
            bad_numbers = "has numbers that are not finite, or too large for the types of the model"
            problem = f"has other arrays ({difference})" if difference else bad_numbers
            log(WARNING, "flanders: round %s: the aggregate %s: %s", number, problem, STAYS)
            return None, metrics
        return Parameters([array.data for array in converted.values()], aggregate.tensor_type), metrics

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Call the strategy's method."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Call the strategy's method."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self, server_round: int, results: list[Evaluation], failures: list[Evaluation | BaseException]
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Let the strategy aggregate the evaluations of clients that were kept in training.

        The claimed numbers of examples are limited as in training.
        """
        usable = [
            (proxy, result)
            for proxy, result in results
            if (self._kept is None or proxy.cid in self._kept)
            and math.isfinite(result.loss)
            and 0 < result.num_examples <= (self.limits.max_examples or MOST_EXAMPLES)
        ]
        if len(usable) < len(results):
            unused = len(results) - len(usable)
            log(INFO, "flanders: %s evaluations do not count: not usable, or of clients that were not kept", unused)
        weights = self.limits.capped([float(result.num_examples) for _, result in usable])
        capped = [
            (proxy, replace(result, num_examples=max(1, int(weight))))
            for (proxy, result), weight in zip(usable, weights, strict=True)
        ]
        return self.strategy.aggregate_evaluate(server_round, capped, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Call the strategy's method."""
        return self.strategy.evaluate(server_round, parameters)


def read_result(model: ModelArrays, result: FitRes, max_examples: float | None) -> tuple[Vector, FitRes]:
    """Return the float arrays of a result as one vector, and the result with its arrays in the types of the model.

    Raise `BadReply` if the result cannot be used.
    """
    if not 0 < result.num_examples <= (max_examples or MOST_EXAMPLES):
        raise BadReply(f"it claims {result.num_examples} examples")
    arrays = named(result.parameters)
    if len(arrays) != len(model.arrays):
        raise BadReply(f"{len(arrays)} arrays instead of {len(model.arrays)}")
    for expected in model.arrays:
        numbers = expected.decode(arrays[expected.name])
        arrays[expected.name] = expected.in_own_type(arrays[expected.name], numbers)
    parameters = Parameters([array.data for array in arrays.values()], result.parameters.tensor_type)
    return model.flatten(arrays), replace(result, parameters=parameters)


def named(parameters: Parameters) -> dict[str, Array]:
    """Return the arrays of a legacy model, named "0", "1" and so on. Their bytes hold the type and the shape."""
    return {str(i): Array("", (), NUMPY, tensor) for i, tensor in enumerate(parameters.tensors)}
