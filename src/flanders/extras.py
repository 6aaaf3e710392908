"""The error for an optional package that is not installed. It says how to install the package.

Optional packages come in named sets, the extras. `pip install 'flanders-fl[sim]'` installs the extra `sim`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flanders.checks import InputError


class MissingExtra(InputError, ModuleNotFoundError):
    """An optional package is not installed. The message names the extra that installs it.

    Python programs can catch this error as an `ImportError`. The command line handles it like every `InputError`:
    it prints only the message.
    """


@contextlib.contextmanager
def needing(extra: str) -> Iterator[None]:
    """If an import inside the block fails, raise an error that names the extra to install.

    Such a block may be inside another one. The error then names the extra of the outer block. So this extra must
    also install the packages that the inner block needs.

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
        missing_extra = MissingExtra(
            f"This needs {missing}, which is not installed. Install it with: pip install 'flanders-fl[{extra}]'."
        )
        missing_extra.name = missing
        raise missing_extra from error
