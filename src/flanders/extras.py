"""The error for an optional package that is not installed. It names the extra of this package to install.

An extra is a named set of optional packages, as in `pip install 'flanders-fl[sim]'`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flanders.checks import InputError


class MissingExtra(InputError, ModuleNotFoundError):
    """An optional package is not installed. The message names the extra that installs it.

    Python programs can catch it as an `ImportError`. The command line shows it as an `InputError`.
    """


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """If an import inside the block fails, raise an error that names the extra to install.

    If such a block is inside another one, the error names the extra of the outer block. That extra also installs
    the packages that the inner block needs.

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
