"""The same filter for strategies of Flower's older interface, `flwr.server.strategy`."""

from __future__ import annotations

from logging import WARNING
from typing import Any

import numpy as np
from flwr.common import FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.common.logger import log
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from flanders.defense import defend
from flanders.filters import Filter, Flanders
from flanders.types import IntVector, Round

Result = tuple[ClientProxy, FitRes]


class FilteredLegacyStrategy(Strategy):
    """Let a filter drop suspicious results before a legacy strategy aggregates the rest.

    It checks, filters and logs; states, bans, records and sketches are for `FilteredStrategy`. Clients are known by
    Flower's `cid`. All float arrays are scored, for here arrays have no names to tell buffers by.
    `strategy` is one of `flwr.server.strategy`, e.g. `FedAvg()`; `filter` and `seed` are as in `FilteredStrategy`.
    """

    def __init__(self, strategy: Strategy, filter: Filter[Any] | None = None, *, seed: int | None = None) -> None:
        self.strategy, self.filter = strategy, Flanders() if filter is None else filter
        self.state = self.filter.init(np.random.default_rng(seed))
        self._sent: list[Any] = []

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        """Remember the global model and let the strategy choose whom to ask."""
        self._sent = parameters_to_ndarrays(parameters)
        return self.strategy.configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(
        self, server_round: int, results: list[Result], failures: list[Any]
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Let the strategy aggregate the results that the filter keeps."""
        usable = {proxy.cid: (proxy, result) for proxy, result in results if self._is_usable(proxy, result)}
        names = sorted(usable)
        if not names:
            return None, {}
        answer: list[Any] = [None, {}]

        def aggregate(kept: IntVector) -> Any:
            answer[:] = self.strategy.aggregate_fit(server_round, [usable[names[i]] for i in kept], failures)
            return before if answer[0] is None else _flat(parameters_to_ndarrays(answer[0]))

        before = _flat(self._sent)
        rows = np.stack([_flat(parameters_to_ndarrays(usable[name][1].parameters)) for name in names])
        weights = np.array([max(usable[name][1].num_examples, 1) for name in names], dtype=float)
        outcome = defend(self.filter, self.state, Round(rows, tuple(names), weights, before), aggregate)
        self.state = outcome.state
        if outcome.dropped:
            log(WARNING, "flanders: round %s: dropped %s", server_round, ", ".join(map(str, outcome.dropped)))
        counts = {"flanders-kept": len(outcome.kept), "flanders-dropped": len(outcome.dropped)}
        return answer[0], {**answer[1], **counts}

    def _is_usable(self, proxy: ClientProxy, result: FitRes) -> bool:
        try:
            arrays = parameters_to_ndarrays(result.parameters)
            fine = [a.shape for a in arrays] == [a.shape for a in self._sent]
            fine = fine and bool(np.isfinite(_flat(arrays)).all())
        except Exception:  # anything may be wrong with bytes that a client sends
            fine = False
        if not fine:
            log(WARNING, "flanders: refused what %s sent: other arrays, or not finite", proxy.cid)
        return fine

    def initialize_parameters(self, client_manager: Any) -> Parameters | None:
        """Leave it to the strategy."""
        return self.strategy.initialize_parameters(client_manager)

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        """Leave it to the strategy."""
        return self.strategy.configure_evaluate(server_round, parameters, client_manager)

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """Leave it to the strategy."""
        return self.strategy.aggregate_evaluate(server_round, results, failures)

    def evaluate(self, server_round: int, parameters: Parameters) -> Any:
        """Leave it to the strategy."""
        return self.strategy.evaluate(server_round, parameters)


def _flat(arrays: list[Any]) -> Any:
    return np.concatenate([np.asarray(a, dtype=np.float32).ravel() for a in arrays if a.dtype.kind == "f"])
