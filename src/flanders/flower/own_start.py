"""A strategy's own `start`, with its rounds led through the filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.serverapp.strategy import Result, Strategy

LED = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate", "summary")
"""The methods that the wrapper carries out in place of the strategy."""


def start_of(wrapper: Strategy, strategy: Strategy) -> Callable[..., Result]:
    """Return the `start` with which to carry out the rounds of a wrapper around a strategy.

    Flower's guides teach to override `start`, for example to log to Weights & Biases. Such a `start` calls
    `self.aggregate_train` and so on, and may read and set attributes of the strategy. It is therefore called on a
    stand-in: an object of a subclass that shares all attributes with the strategy, but whose `aggregate_train` and
    so on are those of the wrapper. A strategy that does not override `start` is not concerned.
    """
    kind = type(strategy)
    if kind.start is Strategy.start:
        return partial(Strategy.start, wrapper)
    led: dict[str, Any] = {name: _led(getattr(wrapper, name)) for name in LED}
    stand_in: Strategy = object.__new__(type(kind.__name__, (kind,), led))
    stand_in.__dict__ = strategy.__dict__
    return stand_in.start


def _led(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls another object's method with the same arguments."""
    return lambda self, *arguments, **options: method(*arguments, **options)
