"""Functions that write files completely or not at all, and checks of the places to write to."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flanders.checks import InputError

if sys.platform != "win32":
    import fcntl

DATABASE = b"SQLite format 3\0"
"""The first bytes of a results file, which is an SQLite database with the results of experiments."""
YOUNGEST = 10.0
"""A file without a lock counts as left by a killed process if it has not changed for this many seconds. A newer
file may be in use: a process locks its file shortly after it has made it."""


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing. When the block ends, the new file replaces the old file at `path`.

    If the block fails, the new file is removed. At any time, `path` is the whole old file or the whole new file.
    The new file and its folder are flushed to the disk, so the new file survives a power failure. With `private`,
    only the owner can read the new file. If `path` is a link, the link is replaced, not the file that it points to.

    A process that is killed inside the block leaves an unfinished file. A process that writes `path` later removes
    the unfinished file.
    """
    target = Path(path)
    remove_unfinished(target)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        _lock(handle)  # the system releases the lock when the process ends, even if it is killed
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def remove_unfinished(target: Path) -> None:
    """Remove the unfinished files that killed processes have left beside `target`. On Windows, do nothing."""
    if sys.platform == "win32":
        return
    unfinished = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.part")
    now = time.time()
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(target.parent)):
            if not unfinished.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if now - entry.stat(follow_symlinks=False).st_mtime > YOUNGEST and not _is_locked(Path(entry.path)):
                    os.unlink(entry.path)


def _lock(handle: int) -> None:
    """Lock an open file, as a sign that this process is writing to it."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_locked(path: Path) -> bool:
    """Whether a process is writing to a file. True if the file system cannot tell."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has locked the file, or the file system has no locks
        return True
    finally:
        os.close(handle)
    return False


def write_atomically(path: str | os.PathLike[str], data: bytes | str, *, private: bool = False) -> None:
    """Write a whole file. If anything fails, the old file at `path` stays. Text is written as UTF-8."""
    with atomic(path, private=private) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk, if the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def writing(folder: Path, named: str = "") -> Iterator[None]:
    """Make a folder if it is missing. Turn an `OSError` of the block into an `InputError` with a short message.

    The message names the path `named`, which the user has typed. If `named` is empty, the message names the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        what = named or folder
        raise InputError(f"{what} cannot be written: {error.strerror or error}. Choose another place.") from error


def file_name(text: str) -> str:
    """Return a text as a file name. Letters, digits, dots and underscores stay.

    Other characters become hyphens, one for each group of neighbours. Hyphens and dots at both ends are removed. If
    nothing is left, the name is "run".

    Examples
    --------
    >>> file_name("multi-krum · lie 80% · alpha 0.5")
    'multi-krum-lie-80-alpha-0.5'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def check_target(path: Path) -> None:
    """Raise an `InputError` if `path` is in a missing folder, or if it is a folder, a pipe or a results file."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Make it, or choose another.")
    if path.exists() and not path.is_file():  # e.g. a folder, or a pipe, from which reading might never end
        raise InputError(f"{path} cannot be written: it is no plain file. Choose another name.")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(len(DATABASE)) == DATABASE:
            raise InputError(f"{path} holds results, which would be overwritten. Choose another name.")
