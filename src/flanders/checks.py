"""Checks of the values that users pass. The errors say which value is needed and which was passed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class InputError(ValueError):
    """A value from the caller cannot be used. The message says what is wrong with it and what to do."""


def check_number(
    caller: str,
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    whole: bool = False,
    optional: bool = False,
) -> None:
    """Raise an `InputError` unless `value` is a finite number from `low` to `high`.

    With `whole`, `value` must be an integer. With `optional`, None is allowed, too. For the message, `caller` is
    the name of a class or function, and `name` is the name of its parameter.
    """
    if optional and value is None:
        return
    kinds = int | np.integer if whole else int | np.integer | float | np.floating
    right_type = isinstance(value, kinds) and not isinstance(value, bool)
    if not right_type or not low <= value <= high or value == math.inf:
        kind = "a whole number" if whole else "a number"
        span = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
        raise InputError(f"The `{name}` parameter of {caller} must be {kind} {span}. Got {shown(value)} instead.")


def check_ids(caller: str, name: str, value: object) -> tuple[int | str, ...]:
    """Return ids of clients as a tuple. Raise an `InputError` unless `value` holds ints and strings.

    A single string is an error, since it would count as the list of its letters.
    """
    ids = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else (None,)
    ids = tuple(each.item() if isinstance(each, np.generic) else each for each in ids)
    if not all(isinstance(each, int | str) and not isinstance(each, bool) for each in ids):
        raise InputError(
            f"The `{name}` parameter of {caller} must be a list of the ids of clients, which are ints or strings, "
            f"e.g. ['site-1', 'site-2']. Got {shown(value)} instead."
        )
    return ids


def shown(value: object) -> str:
    """Return a value as Python writes it, or its type if Python cannot write it, e.g. since it has too many digits.

    Examples
    --------
    >>> shown("x"), shown(10**5000)
    ("'x'", 'a value of type int')
    """
    try:
        return repr(value)
    except Exception:  # the value may come from a file or from a client, and can be anything
        return f"a value of type {type(value).__name__}"


def check_choice(caller: str, name: str, value: object, choices: Sequence[str]) -> None:
    """Raise an `InputError` unless `value` is one of `choices`."""
    if value not in choices:
        raise InputError(
            f"The `{name}` parameter of {caller} must be one of {', '.join(map(repr, choices))}. "
            f"Got {value!r} instead.{did_you_mean(str(value), choices)}"
        )


def check_instance(
    caller: str, name: str, value: object, kind: type, example: str = "", *, optional: bool = False, hint: str = ""
) -> None:
    """Raise an `InputError` unless `value` is an instance of `kind`. With `optional`, None is allowed, too.

    The message shows `example`, an expression that makes such an instance, and ends with `hint`.
    """
    if isinstance(value, kind) or (optional and value is None):
        return
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    wanted = f"{article} {kind.__name__}{f', e.g. {example}' if example else ''}{', or None' if optional else ''}"
    raise InputError(f"The `{name}` parameter of {caller} must be {wanted}. Got {value!r} instead.{hint}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the sentence " Did you mean ...?" with the known name nearest to `name`, or "" if no name is near."""
    guess = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {guess[0]!r}?" if guess else ""


def resolve_count(value: float, m: int) -> int:
    """Return a number of clients. An int is returned as it is. A float is a fraction of `m` clients, rounded up."""
    if isinstance(value, int | np.integer):
        return int(value)
    return math.ceil(round(value * m, 9))  # without `round`, 0.28 * 25 gives 8: as a float, the product is above 7
