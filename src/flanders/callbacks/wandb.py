"""The callback `WandB`: logs the numbers of each round to Weights & Biases (W&B)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from flanders.callbacks.callback import Callback, RunInfo
from flanders.callbacks.measures import measures_of
from flanders.checks import check_choice
from flanders.extras import needing
from flanders.record import RoundRecord

if TYPE_CHECKING:
    from wandb import Run

Mode = Literal["online", "offline"]


class WandB(Callback):
    """Log the settings of a run and the numbers of each round to Weights & Biases.

    If a run of W&B is active (`wandb.init()`), the numbers go to this W&B run. Otherwise the callback makes a W&B
    run. The callback needs an optional package: `pip install 'flanders-fl[wandb]'`.

    Parameters
    ----------
    project
        The project in W&B to which a new W&B run belongs.
    name
        The name of a new W&B run. Default: a short description of the run (`RunInfo.name`).
    mode
        `"online"` sends the numbers to the W&B server. `"offline"` writes the numbers to `folder` and does not use
        the network. The command `wandb sync` can send them later.
    folder
        The folder in which W&B keeps its files. Default: the working directory.
    """

    def __init__(
        self,
        project: str = "flanders",
        name: str | None = None,
        *,
        mode: Mode = "online",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        check_choice("WandB", "mode", mode, ("online", "offline"))
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise W&B reports its own crashes
        with needing("wandb"):
            import wandb  # noqa: F401
        self.project, self.name, self.mode, self.folder = project, name, mode, folder
        self._run: Run | None = None
        self._own = False  # whether the callback has made the W&B run
        self._info = RunInfo("flanders")

    def on_start(self, run: RunInfo) -> None:
        """Open the W&B run, and log the settings."""
        self._info = run
        self._open()

    def on_round(self, record: RoundRecord) -> None:
        """Log the numbers of a round. The step is the number of the round."""
        self._open().log(measures_of(record), step=record.number)

    def on_end(self) -> None:
        """Finish the W&B run, if the callback made it."""
        if self._run is not None and self._own:
            self._run.finish()
        self._run = None

    def _open(self) -> Run:
        import wandb

        if self._run is not None:
            return self._run
        self._own = wandb.run is None
        if wandb.run is not None:
            self._run = wandb.run
            self._run.config.update(dict(self._info.settings), allow_val_change=True)  # type: ignore[no-untyped-call]
            return self._run
        self._run = wandb.init(
            project=self.project,
            name=self.name or self._info.name,
            id=self._info.id or None,
            resume="allow" if self._info.id and self.mode == "online" else None,
            config=dict(self._info.settings),
            mode=self.mode,
            dir=self.folder,
            settings=wandb.Settings(silent=True),
            reinit="create_new",
        )
        return self._run
