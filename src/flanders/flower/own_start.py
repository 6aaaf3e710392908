"""The function `start_of`: makes a strategy that overrides `start` work with a filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.serverapp.strategy import Result, Strategy

REPLACED = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")
"""The methods of the strategy that are replaced by those of the wrapper."""


def start_of(wrapper: Strategy, strategy: Strategy) -> Callable[..., Result]:
    """Return the function that carries out the rounds: the strategy's own `start`, or Flower's if it has none.

    Flower's guides show how to override `start`, for example to log to Weights & Biases. Such a `start` calls
    `self.aggregate_train` and other methods, and may read and set attributes of the strategy. So it is called on a
    third object, of a subclass of the strategy's class. This object shares all attributes with the strategy, but
    its `aggregate_train` and the other methods in `REPLACED` call those of the wrapper, which filter the replies.
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
