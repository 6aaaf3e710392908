"""Writing files: whole or not at all, and only where the user may write."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from flanders.checks import InputError

DATABASE = b"SQLite format 3\0"
"""The first bytes of a results file."""


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block ends, or is removed if the block fails.

    A reader sees the old file or the new one, never half of it. The file and its folder are flushed to the disk, so
    the new file is there after a power failure, too. With `private`, only the owner can read it.
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def write_atomically(path: str | os.PathLike[str], data: bytes | str, *, private: bool = False) -> None:
    """Write a whole file. If anything fails, the old file stays. Text is written as UTF-8."""
    with atomic(path, private=private) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of files to the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def writing(folder: Path, named: str = "") -> Iterator[None]:
    """Make a folder if it is missing. If the block cannot write, raise an error that says so in one sentence.

    The error names the folder, or the path `named` if the user gave another one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        what = named or folder
        raise InputError(f"{what} cannot be written: {error.strerror or error}. Choose another place.") from error


def file_name(text: str) -> str:
    """Return a text as a file name that every file system accepts.

    Examples
    --------
    >>> file_name("multi-krum · lie 80% · alpha 0.5")
    'multi-krum-lie-80-alpha-0.5'
    """
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "run"


def check_target(path: Path) -> None:
    """Complain if there is no folder for a new file at `path`, or if it would overwrite a results file."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Make it, or choose another.")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(len(DATABASE)) == DATABASE:
            raise InputError(f"{path} holds results, which would be overwritten. Choose another name.")
