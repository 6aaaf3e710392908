"""The class `FilteredAggregator` for NVFLARE: drops suspicious replies, and aggregates the rest."""

try:
    import nvflare.app_common.aggregators.model_aggregator  # noqa: F401
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "nvflare":
        raise
    raise ModuleNotFoundError(
        "flanders.nvflare needs NVFLARE, which is not installed. "
        "Install it with: pip install 'flanders-fl[nvflare]'",
        name="nvflare",
    ) from error

from flanders.nvflare.aggregator import FilteredAggregator

__all__ = ["FilteredAggregator"]
