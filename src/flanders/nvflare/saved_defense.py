"""Functions that save the memory of a `FilteredAggregator` in its `state_dir`, and restore it in a later job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flanders.checks import InputError
from flanders.defense import Defense
from flanders.defense_state import DefenseState
from flanders.hosts.model_arrays import HostArrays
from flanders.hosts.state_folder import ELSEWHERE, load_saved
from flanders.state import save_state, saveable

FILE = "flanders-nvflare.npz"
"""The name of the file in the `state_dir`."""
FORMAT = 1
"""The version of the file's format. A file of another version is refused."""


@saveable
@dataclass(frozen=True, eq=False)
class SavedDefense:
    """The content of the file in the `state_dir`. The file is written after each round."""

    defense: DefenseState
    rounds: int
    """The number of rounds that are done."""
    arrays: tuple[tuple[str, tuple[int, ...]], ...]
    """The name and the shape of each array of the model."""
    format: int = FORMAT


def save_defense(folder: Path, defense: Defense, rounds: int, arrays: HostArrays) -> None:
    """Write the memory of a defense to a folder."""
    shapes = tuple((array.name, array.shape) for array in arrays.arrays)
    save_state(folder / FILE, SavedDefense(defense.memory, rounds, shapes))


def recall_defense(folder: Path, defense: Defense, arrays: HostArrays) -> int:
    """Restore a defense from the memory in a folder. Return the number of rounds in this memory.

    If the folder has no memory, return 0. `arrays` describes the global model. If the memory was saved for a model
    with other arrays, raise an `InputError`.
    """
    path = folder / FILE
    if not path.exists():
        return 0
    saved = load_saved(path, SavedDefense, FORMAT, "FilteredAggregator")
    if saved.arrays != tuple((array.name, array.shape) for array in arrays.arrays):
        raise InputError(f"{path} was saved for a model with other arrays. {ELSEWHERE}")
    try:
        defense.memory = saved.defense
    except InputError as error:
        raise InputError(f"{path}: {error} {ELSEWHERE}") from error
    return saved.rounds
