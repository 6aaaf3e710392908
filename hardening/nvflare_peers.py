"""The aggregators of NVFLARE, and this package's aggregator for NVFLARE, as functions of the replies of one round.

`hardening.peers` tries bad inputs on them.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any

Reply = tuple[dict[str, Any], Any]
"""The arrays of a reply, and the number of examples that it claims. None if it claims no number."""
Round = Callable[[dict[str, Any], Sequence[Reply]], dict[str, Any]]
"""A function from the global model and the replies to the next global model."""


def nvflare_rounds() -> dict[str, Round]:
    """Return the aggregators to compare. Empty if NVFLARE is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        return {}
    return {
        "NVFLARE WeightedAggregationHelper": by_helper,
        "NVFLARE InTimeAccumulateWeightedAggregator": by_accumulation,
        "FilteredAggregator() in NVFLARE": by_filter,
    }


def module(name: str) -> Any:
    """Import a module of NVFLARE without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(f"nvflare.{name}")


def new_context() -> Any:
    """Return the context of the first round of a job."""
    context = module("apis.fl_context").FLContextManager(job_id="job").new_context()
    context.set_prop(module("app_common.app_constant").AppConstants.CURRENT_ROUND, 1)
    return context


def by_helper(start: dict[str, Any], replies: Sequence[Reply]) -> dict[str, Any]:
    """Aggregate with the class that NVFLARE's FedAvg workflow uses."""
    total = module("app_common.aggregators.weighted_aggregation_helper").WeightedAggregationHelper()
    for number, (arrays, examples) in enumerate(replies):
        total.add(arrays, 1.0 if examples is None else examples, f"site-{number}", 1)
    found: dict[str, Any] = total.get_result()
    return found


def by_accumulation(start: dict[str, Any], replies: Sequence[Reply]) -> dict[str, Any]:
    """Aggregate with the aggregator of NVFLARE's ScatterAndGather workflow, including its own checks."""
    dxo, constants = module("apis.dxo"), module("app_common.app_constant").AppConstants
    keys, events, context = (
        module("apis.fl_constant").ReservedKey,
        module("apis.event_type").EventType,
        new_context(),
    )
    rules = module("app_common.aggregators.intime_accumulate_model_aggregator")
    aggregator = rules.InTimeAccumulateWeightedAggregator(expected_data_kind=dxo.DataKind.WEIGHTS)
    aggregator.handle_event(events.START_RUN, context)
    for number, (arrays, examples) in enumerate(replies):
        meta = {} if examples is None else {dxo.MetaKey.NUM_STEPS_CURRENT_ROUND: examples}
        shareable = dxo.DXO(dxo.DataKind.WEIGHTS, data=arrays, meta=meta).to_shareable()
        shareable.set_peer_props({keys.IDENTITY_NAME: f"site-{number}"})
        shareable.add_cookie(constants.CONTRIBUTION_ROUND, 1)
        aggregator.accept(shareable, context)
    found: dict[str, Any] = dxo.from_shareable(aggregator.aggregate(context)).data
    return found


def by_filter(start: dict[str, Any], replies: Sequence[Reply]) -> dict[str, Any]:
    """Aggregate with this package's aggregator, called as NVFLARE's FedAvg workflow calls it."""
    from flanders.nvflare import FilteredAggregator

    models, constants = module("app_common.abstract.fl_model"), module("app_common.app_constant").AppConstants
    aggregator, context = FilteredAggregator(), new_context()
    learnable = module("app_common.abstract.model").make_model_learnable(start, {})
    context.set_prop(constants.GLOBAL_MODEL, learnable, private=True, sticky=True)
    aggregator.fl_ctx = context
    aggregator.reset_stats()
    for number, (arrays, examples) in enumerate(replies):
        meta = {"client_name": f"site-{number}"}
        meta |= {} if examples is None else {"NUM_STEPS_CURRENT_ROUND": examples}
        aggregator.accept_model(models.FLModel(params_type=models.ParamsType.FULL, params=arrays, meta=meta))
    found: dict[str, Any] = aggregator.aggregate_model().params
    return found
