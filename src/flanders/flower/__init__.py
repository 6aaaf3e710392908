"""Flower: a filter around any strategy, a strategy for any aggregator, and attacks to try them with.

`FilteredStrategy` drops suspicious replies before the wrapped strategy aggregates the rest. `AggregatorStrategy`
aggregates with any aggregator of this package. `flanders.flower.attacks` makes a ClientApp malicious.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Flower's command line warns when it is imported
    try:
        import flwr.serverapp.strategy  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "flanders.flower needs Flower, which is not installed. "
            "Install it with: pip install 'flanders-fl[flower]'",
            name="flwr",
        ) from error

from flanders.flower.aggregator_strategy import AggregatorStrategy
from flanders.flower.bans import Ban
from flanders.flower.strategy import FilteredStrategy
from flanders.flower.weight_limits import WeightLimits

__all__ = ["AggregatorStrategy", "Ban", "FilteredStrategy", "WeightLimits"]
