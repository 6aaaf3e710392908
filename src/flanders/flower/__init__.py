"""Strategies for Flower: a filter around any strategy, and a strategy for any aggregator of this package.

`FilteredStrategy` drops suspicious replies before the strategy that it wraps aggregates the rest.
`AggregatorStrategy` aggregates with an aggregator of this package. The module `flanders.flower.attacks` makes a
ClientApp malicious, to try a defence.
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
