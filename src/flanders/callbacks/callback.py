"""The base class of callbacks, and the class `Callbacks`, which calls a list of callbacks and catches errors.

A callback gets the record of each round. The record says what happened to each client and to the round as a whole.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flanders.checks import InputError
from flanders.record import RoundRecord

log = logging.getLogger("flanders")


@dataclass(frozen=True)
class RunInfo:
    """The description of a run, which callbacks get before the first round."""

    name: str
    """A short description of the run."""
    id: str = ""
    """The id of the run in the results file. Empty if there is no results file."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings of the run, by name. The name of a nested setting has dots, for example `filter.name`."""


class Callback(ABC):
    """The base class of callbacks. The simulator, the Flower wrapper and `Defense` call the methods of a callback.

    If the process is killed, `on_end` is not called. So `on_round` should write everything that must not be lost.
    """

    def on_start(self, run: RunInfo) -> None:  # noqa: B027 (it may be left out)
        """Prepare for a run. This is called before the first round, and again when a stopped run is continued."""

    @abstractmethod
    def on_round(self, record: RoundRecord) -> None:
        """Use the record of a round. This is called once for each round, when the record is complete."""

    def on_end(self) -> None:  # noqa: B027 (it may be left out)
        """Clean up. This is called when the run ends, even if the run was stopped before its last round."""


AnyCallback = Callback | Callable[[RoundRecord], object]
"""A callback: an object with the method `on_round`, or a function that takes the record of a round."""


class Callbacks:
    """A list of callbacks that are called one after the other. An error in one of them does not end the run.

    If a callback fails, it is called again in the next round. Its first error is logged. When the run ends, the log
    says how often the callback has failed.

    Parameters
    ----------
    caller
        The name of the class that has the parameter `callbacks`, for error messages.
    callbacks
        Objects with the method `on_round`, or functions that take the record of a round.
    """

    def __init__(self, caller: str, callbacks: Iterable[AnyCallback] = ()) -> None:
        if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
            raise InputError(
                f"The `callbacks` parameter of {caller} must be a list of callbacks. Got {callbacks!r}."
            )
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            if isinstance(callback, type) or not (callable(callback) or hasattr(callback, "on_round")):
                raise InputError(
                    f"Each of the `callbacks` of {caller} must be an object with the method `on_round(record)`, "
                    f"e.g. TensorBoard('runs'), or a function that takes the record. Got {callback!r} instead."
                )
        self._failed = [0] * len(self._callbacks)
        self._started = False

    def __bool__(self) -> bool:
        """Whether the list has any callbacks."""
        return bool(self._callbacks)

    def start(self, run: RunInfo) -> None:
        """Call `on_start` of all callbacks, if it was not called for this run before."""
        if not self._started:
            self._started = True
            self._call("on_start", run)

    def tell(self, record: RoundRecord) -> None:
        """Call `on_round` of all callbacks."""
        self._call("on_round", record)

    def end(self) -> None:
        """Call `on_end` of all callbacks, and log how often each of them has failed."""
        if not self._started:
            return
        self._started = False
        self._call("on_end")
        for callback, count in zip(self._callbacks, self._failed, strict=True):
            if count > 1:
                log.error("flanders: the callback %s failed %s times", callback_name(callback), count)
        self._failed = [0] * len(self._callbacks)

    def _call(self, method: str, *arguments: object) -> None:
        for i, callback in enumerate(self._callbacks):
            function: Callable[..., object] | None = getattr(callback, method, None)
            if function is None and method == "on_round" and callable(callback):
                function = callback
            if function is None:
                continue
            try:
                function(*arguments)
            except Exception as error:  # a callback may be the user's own code and may raise anything
                self._failed[i] += 1
                if self._failed[i] == 1:
                    log.error(
                        "flanders: the callback %s failed (%s: %s). The round is not affected. "
                        "Further errors of this callback are counted, not logged.",
                        callback_name(callback),
                        type(error).__name__,
                        error,
                        exc_info=error,
                    )


def callback_name(callback: AnyCallback) -> str:
    """Return the name of a callback: the name of its class, or of the function.

    Examples
    --------
    >>> callback_name(print)
    'print'
    """
    return str(getattr(callback, "__name__", type(callback).__name__))
