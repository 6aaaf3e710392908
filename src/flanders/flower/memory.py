"""What outlives a ServerApp: the filter's memory, the ban list, the global model, and how many rounds are done."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.logger import log

from flanders.checks import InputError
from flanders.filters import Filter
from flanders.flower.bans import BanList
from flanders.flower.plan import Piece, Plan
from flanders.state import load_state, save_state, saveable

if sys.platform != "win32":
    import fcntl

FILE = "flanders.npz"
FORMAT = 1
ELSEWHERE = "To start afresh, name another `state_dir`."


@saveable
@dataclass(frozen=True, eq=False)
class Memory:
    """All that a federation's defence remembers."""

    filter_name: str
    """The filter with its parameters: another one cannot go on from this."""
    sketch: int | None
    secret: int
    """From which the sketch follows."""
    run: str
    """By which the results file knows this federation."""
    state: Any
    """The filter's own."""
    rounds: int = 0
    """How many are done."""
    bans: BanList = field(default_factory=BanList)
    pieces: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    """The plan of the model; empty before the first round."""
    model: dict[str, Any] = field(default_factory=dict)
    """The global model after the last round; empty if it is not saved."""
    worked: tuple[str, ...] = ()
    """What of the user's has worked at least once: `strategy`, `fallback`, `evaluation`."""
    parameters: dict[str, str] = field(default_factory=dict)
    """The filter's, in words, to tell what has changed."""
    format: int = FORMAT

    @property
    def plan(self) -> Plan | None:
        """Where the model's arrays stand in what the filter remembers."""
        if not self.pieces:
            return None
        pieces = tuple(Piece(name, tuple(shape), start) for name, shape, start in self.pieces)
        return Plan(pieces, sum(piece.size for piece in pieces if piece.scored))

    def planned(self, plan: Plan) -> Memory:
        """Return the memory of a federation with this model."""
        return replace(self, pieces=tuple((p.name, p.shape, p.start) for p in plan.pieces))

    def having_worked(self, role: str) -> Memory:
        """Return the memory of a federation in which this has worked."""
        return self if role in self.worked else replace(self, worked=(*self.worked, role))

    @property
    def has_aggregated(self) -> bool:
        """Whether there has ever been a new global model."""
        return "strategy" in self.worked or "fallback" in self.worked

    @property
    def arrays(self) -> ArrayRecord:
        """The saved global model; without arrays if there is none."""
        return ArrayRecord({name: Array(np.asarray(numbers)) for name, numbers in self.model.items()})


class Notebook:
    """A folder in which the memory is saved after each round, or none.

    Parameters
    ----------
    folder
        Where; None to remember only while the process runs.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.path = None if folder is None else Path(folder) / FILE

    def open(self, filter_: Filter[Any], sketch: int | None, rng: np.random.Generator) -> Memory:
        """Return what is saved for this filter, or a fresh memory if nothing is."""
        if self.path is None or not self.path.exists():
            if self.path is not None:
                _make_folder(self.path.parent)
            run = secrets.token_hex(8)
            secret = int(rng.integers(0, 2**63))
            return Memory(repr(filter_), sketch, secret, run, filter_.init(rng), parameters=_parameters_of(filter_))
        try:
            found = load_state(self.path)
        except InputError as error:
            raise InputError(f"{error} {ELSEWHERE}") from error
        if not isinstance(found, Memory) or found.format != FORMAT:
            raise InputError(f"{self.path} was not saved by FilteredStrategy. {ELSEWHERE}")
        saved, asked = f"sketch={found.sketch}", f"sketch={sketch}"
        if found.filter_name != repr(filter_):
            saved, asked = _changes(found, filter_)
        if saved != asked:
            raise InputError(
                f"{self.path} was saved with {saved}, but now there is {asked}. "
                f"Go on with what it was saved with. {ELSEWHERE}"
            )
        return found

    def tell_of_earlier_rounds(self, done: int, num_rounds: int) -> None:
        """Log after which round a federation goes on, or that there is nothing left to do."""
        if done < num_rounds:
            where = "" if self.path is None else f", saved in {self.path}"
            log(INFO, "flanders: going on after round %s of %s%s", done, num_rounds, where)
        else:
            where = "done. Raise" if self.path is None else f"in {self.path}. Name another `state_dir`, or raise"
            log(WARNING, "flanders: nothing left to do: all %s rounds are %s `num_rounds`.", done, where)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes off the folder, where the system can."""
        if self.path is None or sys.platform == "win32":
            yield
            return
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"Another ServerApp is at work in `state_dir` {self.path.parent}. End it. {ELSEWHERE}"
                ) from None
            except OSError:  # some network file systems know no locks
                pass
            yield
        finally:
            os.close(folder)

    def save(self, memory: Memory, arrays: ArrayRecord) -> None:
        """Save the memory and the global model, all of it or nothing.

        A federation goes on if its disk is full: what is lost then is what a restart would go on from.
        """
        if self.path is None:
            return
        model = {name: array.numpy() for name, array in arrays.items()}
        try:
            save_state(self.path, replace(memory, model=model))
        except OSError as error:
            log(ERROR, "%s cannot be written (%s): a restart would go back to an earlier round", self.path, error)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`state_dir` {folder} cannot be made: {error.strerror or error}.") from error


def _parameters_of(filter_: Filter[Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in getattr(filter_, "__dict__", {}).items()}


def _changes(found: Memory, filter_: Filter[Any]) -> tuple[str, str]:
    """Return a saved filter and another one in words, with the parameters alone in which they differ."""
    name, before, now = type(filter_).__name__, found.parameters, _parameters_of(filter_)
    if not found.filter_name.startswith(f"{name}("):
        return found.filter_name.partition("(")[0], name
    names = [key for key in now if key in before and before[key] != now[key]]
    if not names:
        return found.filter_name, repr(filter_)
    was, is_ = (", ".join(f"{key}={values[key]}" for key in names) for values in (before, now))
    return f"{name}({was})", f"{name}({is_})"
