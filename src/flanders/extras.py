"""Optional packages, and the error if one is not installed. An extra of this package installs some of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flanders.checks import InputError


class MissingExtra(InputError, ModuleNotFoundError):
    """An optional package is not installed. The message names the extra that installs it.

    It is an `ImportError` for Python programs, and an `InputError` for the command line.
    """


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """If an import inside the block fails, raise an error that names the extra to install.

    If blocks lie within each other, the error names the extra of the outermost one, which brings all that is
    needed.

    Examples
    --------
    >>> with needing("report"):
    ...     import no_such_package
    Traceback (most recent call last):
        ...
    flanders.extras.MissingExtra: This needs no_such_package, which is not installed. Install it with: ...
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "flanders"):
            raise
        told = MissingExtra(
            f"This needs {missing}, which is not installed. Install it with: pip install 'flanders-fl[{extra}]'."
        )
        told.name = missing
        raise told from error
