"""Writing where the user said, or saying why that cannot be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from flanders.types import InputError


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
