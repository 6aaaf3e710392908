"""The memory of `FilteredStrategy` from round to round, and the folder in which the memory is saved.

The folder is the parameter `state_dir` of `FilteredStrategy`. A ServerApp that is started again with the same
folder continues after the last saved round.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from logging import ERROR, INFO, WARNING
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.logger import log
from numpy.typing import NDArray

from flanders.audit import Head
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.defense_state import DefenseState
from flanders.flower.bans import BanList
from flanders.flower.model_arrays import ModelArray, ModelArrays
from flanders.flower.roster import Roster
from flanders.hosts.state_folder import ELSEWHERE, load_saved, locked_folder, make_folder
from flanders.state import load_state, save_state, saveable

FILE = "flanders.npz"
"""The name of the file in the `state_dir`."""
FORMAT = 3
"""The version of the file's format. A file of another version is refused."""


@saveable
@dataclass(frozen=True, eq=False)
class SavedMemory:
    """All that `FilteredStrategy` remembers from round to round."""

    sketch: int | None
    """The length of a sketch, the short vector that the filter sees in place of a model; None without sketches."""
    secret: int
    """The seed of the random numbers with which sketches are computed."""
    run: str
    """The name of this federation in the results file."""
    defense: DefenseState | None = None
    """What the `Defense` remembers, mainly the filter's memory; None before the first round."""
    rounds: int = 0
    """The number of rounds that are done."""
    bans: BanList = field(default_factory=BanList)
    """The offences and the bans of all clients."""
    roster: Roster = field(default_factory=Roster)
    """Which client is on each node, and whether its last reply was kept."""
    arrays: tuple[tuple[str, tuple[int, ...], int, str], ...] = ()
    """The description of each array of the model, as the fields of a `ModelArray`; empty before the first round."""
    model: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    """The global model after the last round. It is only in the saved file. In memory this field is empty."""
    worked: tuple[str, ...] = ()
    """Which of `strategy`, `fallback`, `evaluation` and `filter` have worked at least once."""
    audit_head: str = ""
    """A text that identifies the last entry of the audit trail (a file of decisions); empty without a trail."""
    format: int = FORMAT

    @property
    def model_arrays(self) -> ModelArrays | None:
        """The description of the global model's arrays; None before the first round."""
        if not self.arrays:
            return None
        return ModelArrays(tuple(ModelArray(*fields) for fields in self.arrays))

    @property
    def has_aggregated(self) -> bool:
        """Whether there has ever been a new global model."""
        return "strategy" in self.worked or "fallback" in self.worked

    @property
    def record(self) -> ArrayRecord:
        """The saved global model as a record of Flower; empty if there is no saved model."""
        return ArrayRecord({name: Array(np.asarray(numbers)) for name, numbers in self.model.items()})


class StateFolder:
    """The folder in which the memory is saved after each round.

    Parameters
    ----------
    folder
        The user's `state_dir`. With None nothing is saved.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self._seen: tuple[int, ...] | None = None

    @property
    def folder(self) -> Path | None:
        """The folder; None if nothing is saved."""
        return None if self.path is None else self.path.parent

    def recall(self, fresh: SavedMemory, defense: Defense) -> SavedMemory:
        """Return the saved memory, and restore `defense` from it. If nothing is saved, return `fresh`.

        Raise an `InputError` if the saved memory was made with another filter or another sketch.
        """
        if self.path is None:
            return fresh
        if not self.path.exists():
            make_folder(self.path.parent)
            return fresh
        self._seen = self._stamp()
        saved = self._load(self.path, fresh.sketch)
        if saved.defense is not None:
            try:
                defense.memory = saved.defense
            except InputError as error:
                raise InputError(f"{self.path}: {error} {ELSEWHERE}") from error
        return saved

    @property
    def has_changed(self) -> bool:
        """Whether another ServerApp has written the file since this object last read or wrote it."""
        return self.path is not None and self._stamp() not in (None, self._seen)

    def _stamp(self) -> tuple[int, ...] | None:
        """Return the inode, size and time of the file, which show if it was replaced; None if there is no file."""
        try:
            status = os.stat(self.path or "")
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    @staticmethod
    def _load(path: Path, sketch: int | None) -> SavedMemory:
        saved = load_saved(path, SavedMemory, FORMAT, "FilteredStrategy")
        if saved.sketch != sketch:
            raise InputError(
                f"{path} was saved with sketch={saved.sketch}, but this strategy has sketch={sketch}. "
                f"Pass sketch={saved.sketch} to continue. {ELSEWHERE}"
            )
        return saved

    def tell_of_earlier_rounds(self, done: int, num_rounds: int) -> None:
        """Log after which round the federation continues, or that all rounds are done."""
        if done < num_rounds:
            where = "" if self.path is None else f", saved in {self.path}"
            log(INFO, "flanders: going on after round %s of %s%s", done, num_rounds, where)
        else:
            where = "done. Raise" if self.path is None else f"in {self.path}. Name another `state_dir`, or raise"
            log(WARNING, "flanders: nothing left to do: all %s rounds are %s `num_rounds`.", done, where)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out of the folder during a `with` block, if the system has file locks."""
        message = f"Another ServerApp is at work in `state_dir` {self.folder}. End it. {ELSEWHERE}"
        return locked_folder(self.folder, message)

    def save(self, memory: SavedMemory, arrays: ArrayRecord) -> None:
        """Save the memory and the global model in one file.

        If writing fails, the federation goes on, but a restart would continue from an earlier round. If another
        ServerApp has written the file, raise an `InputError`, and do not overwrite the file.
        """
        if self.path is None:
            return
        if self.has_changed:
            raise InputError(f"Another ServerApp has saved its rounds in {self.path}. End it. {ELSEWHERE}")
        model = {name: array.numpy() for name, array in arrays.items()}
        try:
            save_state(self.path, replace(memory, model=model))
            self._seen = self._stamp()
        except OSError as error:
            log(ERROR, "%s cannot be written (%s): a restart would go back to an earlier round", self.path, error)


def saved_audit_head(folder: Path) -> Head:
    """Return the head that is saved in a `state_dir`. It identifies an entry of the audit trail."""
    saved = load_state(folder / FILE)
    if not isinstance(saved, SavedMemory) or not saved.audit_head:
        raise InputError(f"{folder} holds no memory of an audit trail. Name the `state_dir` of the federation.")
    return Head.parse(saved.audit_head)
