"""What a callback is, and how callbacks are called without risk for the round."""

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
    """What is about to run, as callbacks learn it before the first round."""

    name: str
    """The run in a few words."""
    id: str = ""
    """The id of the run in a results file; empty if it has none."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings of the run by dotted key, for example `filter.name`."""


class Callback(ABC):
    """Learns of each round that ends. The simulator, the Flower wrapper and `Defense` all call it in the same way.

    What must not be lost is written in `on_round`: if the process is killed, `on_end` is not called.
    """

    def on_start(self, run: RunInfo) -> None:  # noqa: B027 (it may be left out)
        """Prepare for a run. Called before its first round, and again if the run is continued later."""

    @abstractmethod
    def on_round(self, record: RoundRecord) -> None:
        """Take note of a round. Called once for each round, when all about it is known."""

    def on_end(self) -> None:  # noqa: B027 (it may be left out)
        """Take note that the run has ended, whether it is complete or not."""


AnyCallback = Callback | Callable[[RoundRecord], object]
"""A callback: an object with `on_round`, or a function of the record of a round."""


class Callbacks:
    """Callbacks that are called one after the other. An error in one of them stops nothing.

    The first error of each callback is logged. The callback is called again in the next round. When the run ends,
    the log says how often it failed.

    Parameters
    ----------
    caller
        Whose parameter the callbacks are, for messages.
    callbacks
        Objects with `on_round`, or functions of the record of a round.
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
                    f"e.g. TensorBoard('runs'), or a function of the record. Got {callback!r} instead."
                )
        self._failed = [0] * len(self._callbacks)
        self._started = False

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._callbacks)

    def start(self, run: RunInfo) -> None:
        """Tell all callbacks that a run begins, unless they know."""
        if not self._started:
            self._started = True
            self._call("on_start", run)

    def tell(self, record: RoundRecord) -> None:
        """Tell all callbacks of a round."""
        self._call("on_round", record)

    def end(self) -> None:
        """Tell all callbacks that the run has ended, and log how often each of them failed."""
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
            except Exception as error:  # a callback may be anybody's code, so that any error is possible
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
    """Return the name of a callback's class, or of the function.

    Examples
    --------
    >>> callback_name(print)
    'print'
    """
    return str(getattr(callback, "__name__", type(callback).__name__))
