"""Checks of the parameters of the classes in `flanders.flower`. The classes run them before the first round."""

from __future__ import annotations

import os

from flwr.serverapp.strategy import Strategy

from flanders.checks import InputError, check_instance

LEGACY = "flanders.flower.legacy.FilteredLegacyStrategy"
"""The class that wraps strategies of Flower's older interface, `flwr.server.strategy`."""
EXAMPLES = {
    "strategy": "flwr.serverapp.strategy.FedAvg()",
    "aggregator": "Median()",
    "filter": "Flanders(keep=0.8)",
    "fallback": "flwr.serverapp.strategy.FedMedian()",
    "ban": "Ban(after=3, rounds=5)",
    "limits": "WeightLimits(times_median=3)",
    "train_fn": "lambda number, arrays: trained_on_my_examples(arrays)",
    "unscored": "lambda name: name.endswith('running_mean')",
    "identify": "lambda node: str(node.node_id)",
    "initial_arrays": "ArrayRecord(model.state_dict())",
}
"""An example of a value for each parameter. Error messages show it."""


def check_part(
    caller: str, name: str, value: object, kind: type, *, optional: bool = False, example: str = ""
) -> None:
    """Raise an `InputError` unless a parameter is an instance of `kind`. If it is `optional`, it may also be None.

    `caller` is the class that has the parameter, and `name` is the name of the parameter. The error message shows
    an example. For a strategy of Flower's older interface, it names the class to use instead.
    """
    older = any(base.__module__.startswith("flwr.server.strategy") for base in type(value).__mro__)
    hint = f" For strategies of flwr.server.strategy there is {LEGACY}." if older and kind is Strategy else ""
    check_instance(caller, name, value, kind, example or EXAMPLES[name], optional=optional, hint=hint)


def check_function(caller: str, name: str, value: object) -> None:
    """Raise an `InputError` unless a parameter can be called."""
    if not callable(value):
        raise _wrong(caller, name, f"a function, e.g. {EXAMPLES[name]}", value)


def check_paths(caller: str, **paths: object) -> None:
    """Raise an `InputError` unless each of these parameters is None or a path of at least one character."""
    for name, value in paths.items():
        if value is not None and not (isinstance(value, str | os.PathLike) and os.fspath(value)):
            raise _wrong(caller, name, "a path that is not empty", value)


def _wrong(caller: str, name: str, expected: str, value: object) -> InputError:
    return InputError(f"The `{name}` parameter of {caller} must be {expected}. Got {value!r} instead.")
