"""The strategies of this package for Flower: `FilteredStrategy` and `AggregatorStrategy`.

`FilteredStrategy` wraps another strategy. It drops suspicious replies, and the wrapped strategy aggregates the
rest. `AggregatorStrategy` aggregates with an aggregator of this package. The module `flanders.flower.attacks` makes
a ClientApp malicious, so that you can try a defence.
"""

import warnings

from flanders.extras import needing

with warnings.catch_warnings(), needing("flower"):
    warnings.simplefilter("ignore", DeprecationWarning)  # Flower's command line warns when it is imported
    import flwr.serverapp.strategy  # noqa: F401

from flanders.flower.aggregator_strategy import AggregatorStrategy
from flanders.flower.bans import Ban
from flanders.flower.strategy import FilteredStrategy
from flanders.flower.weight_limits import WeightLimits

__all__ = ["AggregatorStrategy", "Ban", "FilteredStrategy", "WeightLimits"]
