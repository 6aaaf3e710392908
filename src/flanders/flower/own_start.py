"""The function `start_of`: lets `FilteredStrategy` wrap a strategy that overrides `start`.

In Flower, the method `start` of a strategy carries out all rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.serverapp.strategy import Result, Strategy

REPLACED = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")
"""The methods of the wrapped strategy that are replaced by the methods of the wrapper, `FilteredStrategy`."""


def start_of(wrapper: Strategy, strategy: Strategy) -> Callable[..., Result]:
    """Return the method `start` that carries out the rounds: the strategy's own `start`, or else Flower's.

    Flower's guides show how to override `start`, for example to log to Weights & Biases. The `self` of such a
    `start` must have the attributes of the strategy, and the method `aggregate_train` of the wrapper, which filters
    the replies. Neither the strategy nor the wrapper has both. So `start` is called on a third object. It shares
    all attributes with the strategy, and has the methods in `REPLACED` from the wrapper.
    """
    kind = type(strategy)
    if kind.start is Strategy.start:
        return partial(Strategy.start, wrapper)
    methods: dict[str, Any] = {name: _calling(getattr(wrapper, name)) for name in REPLACED}
    stand_in: Strategy = object.__new__(type(kind.__name__, (kind,), methods))
    stand_in.__dict__ = strategy.__dict__
    return stand_in.start


def _calling(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls `method`, which belongs to another object, with the same arguments."""
    return lambda self, *arguments, **options: method(*arguments, **options)
