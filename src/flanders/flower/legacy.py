"""A filter around any strategy of Flower's older interface, `flwr.server.strategy`."""

from __future__ import annotations

from collections.abc import Iterable
from logging import INFO, WARNING
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
from flanders.flower.aggregation import STAYS
from flanders.flower.model_arrays import BadReply, ModelArrays, Vector
from flanders.flower.parameter_checks import check_part
from flanders.flower.replies import MOST_EXAMPLES
from flanders.flower.round_report import filter_line, why
from flanders.flower.stored_arrays import NUMPY
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
    filter, seed, callbacks
        As in `FilteredStrategy`. The records that callbacks get hold neither accuracy nor loss.
    """

    def __init__(
        self,
        strategy: Strategy,
        filter: Filter[Any] | None = None,
        *,
        seed: int | None = None,
        callbacks: Iterable[AnyCallback] = (),
    ) -> None:
        filter = Guard() if filter is None else filter
        me = type(self).__name__
        check_part(me, "strategy", strategy, Strategy, example="flwr.server.strategy.FedAvg()")
        check_part(me, "filter", filter, Filter)
        rng = np.random.default_rng(seed)
        self.strategy, self.defense = strategy, Defense(filter, streams=(rng, rng), callbacks=callbacks)
        log(INFO, "flanders: filter %s", filter_line(filter))
        self._model: ModelArrays | None = None
        self._sent: dict[str, Array] = {}

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
            row = self._row_of(model, proxy, result)
            if row is not None:
                usable[proxy.cid], rows[proxy.cid] = (proxy, result), row
        names = sorted(usable)
        if not names:
            return None, {}
        before = model.flatten(self._sent)
        parameters: Parameters | None = None
        metrics: dict[str, Scalar] = {}

        def aggregate(kept: IntVector) -> Vector:
            nonlocal parameters, metrics
            chosen = [usable[names[row]] for row in kept]
            parameters, metrics = self.strategy.aggregate_fit(server_round, chosen, failures)
            return before if parameters is None else model.flatten(named(parameters))

        weights = np.array([usable[name][1].num_examples for name in names], dtype=float)
        round_ = Round(np.stack([rows[name] for name in names]), tuple(names), weights, before)
        try:
            outcome = self.defense.step(round_, aggregate)
        except InputError as error:  # most likely there are too few clients for the filter
            log(WARNING, "flanders: round %s: the filter cannot judge it (%s): %s", server_round, error, STAYS)
            return None, {"flanders-kept": 0, "flanders-dropped": len(names)}
        if outcome.reasons:
            dropped = ", ".join(f"{client.client} [{why(client)}]" for client in outcome.clients if not client.kept)
            log(WARNING, "flanders: round %s: dropped %s", server_round, dropped)
        counts = {"flanders-kept": len(outcome.kept), "flanders-dropped": len(outcome.dropped)}
        return parameters, {**metrics, **counts}

    def _row_of(self, model: ModelArrays, proxy: ClientProxy, result: FitRes) -> Vector | None:
        """Return the scored arrays of a result as one vector, or None if the result cannot be used."""
        try:
            if not 0 < result.num_examples <= MOST_EXAMPLES:
                raise BadReply(f"{result.num_examples} examples")
            arrays = named(result.parameters)
            if len(arrays) != len(model.arrays):
                raise BadReply(f"{len(arrays)} arrays instead of {len(model.arrays)}")
            for array in model.arrays:
                array.decode(arrays[array.name])
            return model.flatten(arrays)
        except BadReply as why:
            log(WARNING, "flanders: refused what %s sent: %s", proxy.cid, why)
            return None

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
        """Leave it to the strategy."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Leave it to the strategy."""
        return self.strategy.evaluate(server_round, parameters)


def named(parameters: Parameters) -> dict[str, Array]:
    """Return the arrays of a legacy model with their numbers as names. Type and shape are only in their bytes."""
    return {str(i): Array("", (), NUMPY, tensor) for i, tensor in enumerate(parameters.tensors)}
