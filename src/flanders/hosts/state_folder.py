"""Functions that make and lock the `state_dir`, the folder in which a federation saves its memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from flanders.checks import InputError

if sys.platform != "win32":
    import fcntl


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
