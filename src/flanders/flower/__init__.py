"""Flower: one wrapper around any strategy, and attacks to try it with.

`FilteredStrategy` drops suspicious replies before the wrapped strategy aggregates the rest.
`flanders.flower.attacks` turns a ClientApp into a malicious one.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Flower's command line warns when it is imported
    try:
        import flwr.serverapp.strategy  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "flanders.flower needs Flower, which is not installed. "
            "Install it with: pip install 'flanders-fl[flower]'"
        ) from error

from flanders.flower.bans import Ban
from flanders.flower.strategy import FilteredStrategy

__all__ = ["Ban", "FilteredStrategy"]
