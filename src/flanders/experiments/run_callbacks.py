"""The callbacks of runs, for the option `--callback`. A callback gets each round of a run, e.g. to log it.

Each run gets callbacks of its own. They are called in the process that started the runs. A spec or a results file
cannot name callbacks. So a file from somebody else can neither use the network nor run a command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flanders.callbacks import (
    Callback,
    Callbacks,
    Command,
    MLflow,
    Prometheus,
    RunInfo,
    TensorBoard,
    WandB,
    Webhook,
)
from flanders.checks import InputError, did_you_mean
from flanders.experiments.events import Event, RoundEnded, RunEnded, RunStarted
from flanders.files import file_name
from flanders.results.spec_keys import flat_spec
from flanders.results.tree import Tree

Make = Callable[[RunInfo], Callback]
"""A function that makes the callback of one run.

`tensorboard` and the six functions after it each return a `Make`. Their argument is the VALUE of `--callback
NAME=VALUE`, or an empty text if there is no value. When one of these functions is called, it also makes a callback
itself. So if a package is missing or the value is wrong, there is an error before the first run starts."""


def tensorboard(value: str) -> Make:
    """Write each run for TensorBoard to a folder of its own. The value is the parent folder of these folders."""
    folder = Path(value or "tensorboard")
    TensorBoard(folder)
    return lambda run: TensorBoard(folder / f"{file_name(run.name)}-{run.id[:6]}")


def mlflow(value: str) -> Make:
    """Log each run to MLflow. The value is the address of the tracking server."""
    MLflow()
    return lambda run: MLflow(value or None)


def wandb(value: str) -> Make:
    """Log each run to W&B. The value is the name of the project."""
    WandB()
    return lambda run: WandB(value or "flanders")


def wandb_offline(value: str) -> Make:
    """Write the log of each run for W&B into a folder, without the network. The value is the folder."""
    folder = Path(value or ".")
    WandB(mode="offline")
    folder.mkdir(parents=True, exist_ok=True)
    return lambda run: WandB(mode="offline", folder=folder)


def prometheus(value: str) -> Make:
    """Serve the metrics of all runs on one port. The value is the number of the port."""
    port = value or "9464"
    if not port.isdecimal():
        raise InputError(f"--callback prometheus=PORT needs the number of a port. Got {value!r} instead.")
    page = Prometheus(int(port))
    return lambda run: page.sibling()


def webhook(value: str) -> Make:
    """Send the alarms of all runs to a web address. The value is the address."""
    Webhook(value)
    return lambda run: Webhook(value)


def command(value: str) -> Make:
    """Run a command if a round has alarms. The value is the command as it is typed in a shell."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise InputError(f"--callback command=WORDS: {value!r} cannot be split into words ({error}).") from error
    Command(words)
    return lambda run: Command(words)


READERS: Mapping[str, Callable[[str], Make]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "wandb-offline": wandb_offline,
    "prometheus": prometheus,
    "webhook": webhook,
    "command": command,
}
"""The names that `--callback` accepts, and the functions that read their values."""


def parse_callback(text: str) -> Make:
    """Return a function that makes the callback for `NAME` or `NAME=VALUE`."""
    name, _, value = text.partition("=")
    if name not in READERS:
        raise InputError(
            f"There is no callback {name!r}.{did_you_mean(name, READERS)} Choose one of {', '.join(READERS)}."
        )
    return READERS[name](value)


class GridCallbacks:
    """Passes the events of runs to callbacks. Each run has callbacks of its own.

    Parameters
    ----------
    makers
        The functions that make the callbacks of a run; see `parse_callback`.
    names, specs
        Two mappings, whose keys are the ids of the runs. `names` has the label of each run. `specs` has the spec of
        each run, with all defaults filled in.
    """

    def __init__(self, makers: Sequence[Make], names: Mapping[str, str], specs: Mapping[str, Tree]) -> None:
        self._makers, self._names, self._specs = makers, names, specs
        self._open: dict[str, Callbacks] = {}

    def __call__(self, event: Event) -> None:
        """Pass an event of a run to the callbacks of this run."""
        if isinstance(event, RunStarted) and self._makers:
            info = RunInfo(self._names.get(event.run, event.label), event.run, flat_spec(self._specs[event.run]))
            callbacks = Callbacks("flanders run", [make(info) for make in self._makers])
            self._open[event.run] = callbacks
            callbacks.start(info)
        elif isinstance(event, RoundEnded) and event.run in self._open:
            self._open[event.run].tell(event.record)
        elif isinstance(event, RunEnded) and event.run in self._open:
            self._open.pop(event.run).end()

    def close(self) -> None:
        """End the callbacks of runs that have not ended, e.g. because the user stopped them."""
        while self._open:
            self._open.popitem()[1].end()
