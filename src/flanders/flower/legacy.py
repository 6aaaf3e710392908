"""A filter around any strategy of Flower's older interface, `flwr.server.strategy`."""

from __future__ import annotations

import math
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
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.filters import Filter, Guard
from flanders.flower.aggregation import STAYS
from flanders.flower.model_arrays import BadReply, ModelArrays, Vector
from flanders.flower.parameter_checks import check_part
from flanders.flower.reply_metrics import MOST_EXAMPLES
from flanders.flower.stored_arrays import NUMPY
from flanders.flower.weight_limits import DEFAULT_LIMITS, WeightLimits
from flanders.round import Round

Fit = tuple[ClientProxy, FitRes]
"""A client, and the result of its training."""
Evaluation = tuple[ClientProxy, EvaluateRes]
"""A client, and the result of its evaluation."""


class FilteredLegacyStrategy(Strategy):
    """Let a filter drop suspicious results before a legacy strategy aggregates the rest.

    It checks, filters and logs. Only `FilteredStrategy` has saved states, bans, results files and sketches. Clients
    are identified by Flower's `cid`. Arrays of floats in the first global model are scored. Buffers are scored too:
    arrays have no names here, so buffers cannot be recognised.

    Parameters
    ----------
    strategy
        A strategy of `flwr.server.strategy`, e.g. `FedAvg()`.
    filter, seed
        As in `FilteredStrategy`.
    limits
        As in `FilteredStrategy`. Newcomers are not limited.
    """

    def __init__(
        self,
        strategy: Strategy,
        filter: Filter[Any] | None = None,
        *,
        limits: WeightLimits = DEFAULT_LIMITS,
        seed: int | None = None,
    ) -> None:
        filter = Guard() if filter is None else filter
        me = type(self).__name__
        check_part(me, "strategy", strategy, Strategy, example="flwr.server.strategy.FedAvg()")
        check_part(me, "filter", filter, Filter)
        check_part(me, "limits", limits, WeightLimits)
        rng = np.random.default_rng(seed)
        self.strategy, self.defense = strategy, Defense(filter, streams=(rng, rng))
        self._model: ModelArrays | None = None
        self._sent: dict[str, Array] = {}
        self.limits, self._has_worked = limits, False
        self._kept: set[str] | None = None

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
            except BadReply as why:
                log(WARNING, "flanders: refused what %s sent: %s", proxy.cid, why)
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
        except Exception as error:  # too few clients for the filter, or a mistake in the user's own parts
            if not isinstance(error, InputError) and not self._has_worked:
                raise
            log(WARNING, "flanders: round %s: the filter cannot judge it (%s): %s", server_round, error, STAYS)
            return None, {"flanders-kept": 0, "flanders-dropped": len(names)}
        if outcome.reasons:
            dropped = ", ".join(f"{client} [{why}]" for client, why in outcome.reasons.items())
            log(WARNING, "flanders: round %s: dropped %s", server_round, dropped)
        self._kept = {names[row] for row in outcome.kept}
        counts = {"flanders-kept": len(outcome.kept), "flanders-dropped": len(outcome.dropped)}
        return parameters, {**metrics, **counts}

    def _aggregated(
        self, model: ModelArrays, number: int, chosen: list[Fit], failures: list[Fit | BaseException]
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Return what the strategy makes of results, in the types of the model; None if it cannot be used."""
        try:
            found, metrics = self.strategy.aggregate_fit(number, chosen, failures)
        except Exception as error:  # a strategy is the user's own code, so that any error is possible
            if not self._has_worked:
                raise
            log(ERROR, "flanders: round %s: the strategy failed: %s", number, STAYS, exc_info=error)
            return None, {}
        self._has_worked = True
        if found is None:
            return None, metrics
        arrays = {name: Array(array.numpy()) for name, array in named(found).items()}
        difference = model.difference(arrays)
        own = None if difference else model.in_own_types(arrays)
        if own is None or not np.isfinite(model.flatten(own)).all():
            why = f"has other arrays ({difference})" if difference else "is not finite"
            log(WARNING, "flanders: round %s: the aggregate %s: %s", number, why, STAYS)
            return None, metrics
        return Parameters([array.data for array in own.values()], found.tensor_type), metrics

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Leave it to the strategy."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Leave it to the strategy."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(
        self, server_round: int, results: list[Evaluation], failures: list[Evaluation | BaseException]
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Let the strategy aggregate the results of clients that were kept in training, with limited claims."""
        usable = [
            (proxy, result)
            for proxy, result in results
            if (self._kept is None or proxy.cid in self._kept)
            and math.isfinite(result.loss)
            and 0 < result.num_examples <= (self.limits.max_examples or MOST_EXAMPLES)
        ]
        if len(usable) < len(results):
            left = len(results) - len(usable)
            log(INFO, "flanders: %s evaluations do not count: not kept in training, or not usable", left)
        weights = self.limits.capped([float(result.num_examples) for _, result in usable])
        capped = [
            (proxy, replace(result, num_examples=max(1, int(weight))))
            for (proxy, result), weight in zip(usable, weights, strict=True)
        ]
        return self.strategy.aggregate_evaluate(server_round, capped, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the strategy."""
        return self.strategy.evaluate(server_round, parameters)


def read_result(model: ModelArrays, result: FitRes, max_examples: float | None) -> tuple[Vector, FitRes]:
    """Return the scored arrays of a result as one vector, and the result with the types of the model.

    Raise `BadReply` if the result cannot be used.
    """
    if not 0 < result.num_examples <= (max_examples or MOST_EXAMPLES):
        raise BadReply(f"{result.num_examples} examples")
    arrays = named(result.parameters)
    if len(arrays) != len(model.arrays):
        raise BadReply(f"{len(arrays)} arrays instead of {len(model.arrays)}")
    for place in model.arrays:
        numbers = place.decode(arrays[place.name])
        arrays[place.name] = place.in_own_type(arrays[place.name], numbers)
    parameters = Parameters([array.data for array in arrays.values()], result.parameters.tensor_type)
    return model.flatten(arrays), replace(result, parameters=parameters)


def named(parameters: Parameters) -> dict[str, Array]:
    """Return the arrays of a legacy model with their numbers as names. Type and shape are only in their bytes."""
    return {str(i): Array("", (), NUMPY, tensor) for i, tensor in enumerate(parameters.tensors)}
