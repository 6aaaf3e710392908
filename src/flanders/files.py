"""Writing where the user said, or saying why that cannot be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from flanders.checks import InputError

DATABASE = b"SQLite format 3\0"
"""How a results file begins."""


@contextlib.contextmanager
def writing(folder: Path, named: str = "") -> Iterator[None]:
    """Make a folder if need be; inside, whatever keeps files from being written there becomes one sentence.

    `named` is the path that the user gave, where that is not the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        what = named or folder
        raise InputError(f"{what} cannot be written: {error.strerror or error}. Choose another place.") from error


def check_target(path: Path) -> None:
    """Complain where a file is not to be written: its folder is missing, or results would be lost."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Make it, or choose another.")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read(len(DATABASE)) == DATABASE:
            raise InputError(f"{path} holds results, which would be overwritten. Choose another name.")
