"""The class `FilteredAggregator` for NVFLARE: drops suspicious replies, and aggregates the rest."""

from flanders.extras import needing

with needing("nvflare"):
    import nvflare.app_common.aggregators.model_aggregator  # noqa: F401

from flanders.nvflare.aggregator import FilteredAggregator

__all__ = ["FilteredAggregator"]
