"""Functions that make, lock and read the `state_dir`, the folder in which a federation saves its memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from flanders.checks import InputError
from flanders.state import load_state

if sys.platform != "win32":
    import fcntl

ELSEWHERE = "To start afresh, name another `state_dir`."
"""The end of many error messages."""
T = TypeVar("T")


@contextlib.contextmanager
def locked_folder(folder: Path | None, message: str) -> Iterator[None]:
    """Lock a folder while the `with` block runs, if the system has locks. If `folder` is None, do nothing.

    If another process has locked the folder, raise an `InputError` with `message`.
    """
    if folder is None or sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(message) from None
        except OSError:  # some network file systems have no locks
            pass
        yield
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder if it is missing. Raise an `InputError` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"`state_dir` {folder} cannot be made: {error.strerror or error}.") from error


def load_saved(path: Path, kind: type[T], version: int, owner: str) -> T:
    """Return the memory in a file. Raise an `InputError` unless it is of the type `kind` and of this version.

    `owner` is the name of the class that saves such memories, for the error message.
    """
    try:
        saved = load_state(path)
    except InputError as error:
        raise InputError(f"{error} {ELSEWHERE}") from error
    if not isinstance(saved, kind) or getattr(saved, "format", None) != version:
        raise InputError(f"{path} was not saved by this version of {owner}. {ELSEWHERE}")
    return saved
