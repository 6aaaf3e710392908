"""The same filter for strategies of Flower's older interface, `flwr.server.strategy`."""

from __future__ import annotations

from logging import WARNING
from typing import Any

import numpy as np
from flwr.common import FitRes, Parameters, Scalar, parameters_to_ndarrays
from flwr.common.logger import log
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from flanders.arrays import IntVector
from flanders.checks import InputError
from flanders.defense import defend
from flanders.filters import Filter, Fingerprint
from flanders.flower.aggregation import STAYS
from flanders.flower.plan import BadReply
from flanders.flower.replies import MOST_EXAMPLES
from flanders.flower.setup import check_kind
from flanders.round import Round

Result = tuple[ClientProxy, FitRes]


class FilteredLegacyStrategy(Strategy):
    """Let a filter drop suspicious results before a legacy strategy aggregates the rest.

    It checks, filters and logs; states, bans, records and sketches are for `FilteredStrategy`. Clients are known by
    Flower's `cid`. Arrays that are floats at first are scored, for here arrays have no names to tell buffers by.
    `strategy` is one of `flwr.server.strategy`, e.g. `FedAvg()`; `filter` and `seed` are as in `FilteredStrategy`.
    """

    def __init__(self, strategy: Strategy, filter: Filter[Any] | None = None, *, seed: int | None = None) -> None:
        self.strategy, self.filter = strategy, Fingerprint() if filter is None else filter
        me = type(self).__name__
        check_kind(me, "strategy", strategy, Strategy, example="flwr.server.strategy.FedAvg()")
        check_kind(me, "filter", self.filter, Filter)
        self.state = self.filter.init(np.random.default_rng(seed))
        self._sent: list[Any] = []
        self._scored: list[bool] = []

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        """Remember the global model and let the strategy choose whom to ask."""
        self._sent = parameters_to_ndarrays(parameters)
        self._scored = self._scored or [a.dtype.kind == "f" for a in self._sent]
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
            return before if answer[0] is None else self._flat(parameters_to_ndarrays(answer[0]))

        before = self._flat(self._sent)
        rows = np.stack([self._flat(parameters_to_ndarrays(usable[name][1].parameters)) for name in names])
        weights = np.array([usable[name][1].num_examples for name in names], dtype=float)
        try:
            outcome = defend(self.filter, self.state, Round(rows, tuple(names), weights, before), aggregate)
        except InputError as error:  # too few clients for the filter, most likely
            log(WARNING, "flanders: round %s: the filter cannot judge it (%s): %s", server_round, error, STAYS)
            return None, {"flanders-kept": 0, "flanders-dropped": len(names)}
        self.state = outcome.state
        if outcome.reasons:
            dropped = ", ".join(f"{client} [{why}]" for client, why in outcome.reasons.items())
            log(WARNING, "flanders: round %s: dropped %s", server_round, dropped)
        counts = {"flanders-kept": len(outcome.kept), "flanders-dropped": len(outcome.dropped)}
        return answer[0], {**answer[1], **counts}

    def _is_usable(self, proxy: ClientProxy, result: FitRes) -> bool:
        try:
            self._check(result)
        except Exception as error:  # anything may be wrong with bytes that a client sends
            why = error if isinstance(error, BadReply) else f"not readable ({type(error).__name__})"
            log(WARNING, "flanders: refused what %s sent: %s", proxy.cid, why)
            return False
        return True

    def _check(self, result: FitRes) -> None:
        if not 0 < result.num_examples <= MOST_EXAMPLES:
            raise BadReply(f"{result.num_examples} examples")
        arrays = parameters_to_ndarrays(result.parameters)
        if [a.shape for a in arrays] != [a.shape for a in self._sent]:
            raise BadReply("arrays of other shapes")
        if any(
            a.dtype.kind not in ("f" if scored else "fiub") for a, scored in zip(arrays, self._scored, strict=True)
        ):
            raise BadReply("arrays of other types")
        if not all(np.isfinite(a).all() for a in [self._flat(arrays), *arrays]):
            raise BadReply("arrays that are not finite")

    def _flat(self, arrays: list[Any]) -> Any:
        """Return the scored arrays as one vector."""
        scored = [a for a, yes in zip(arrays, self._scored, strict=True) if yes]
        with np.errstate(over="ignore"):  # whoever asks looks for what is not finite
            return np.concatenate([np.asarray(a, dtype=np.float32).ravel() for a in scored])

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
