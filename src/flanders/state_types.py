"""Checks that each value in a state file is of the type that its dataclass declares.

A state file holds the memory of a filter or an attack, as dataclasses. `state.py` uses these checks when it loads a
file. A hostile file can have any value in any field. Without the checks, a value of a wrong type would cause an
error later, in the middle of a round.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from flanders.checks import InputError


def check_fields(cls: type, fields: Mapping[str, object]) -> None:
    """Raise an `InputError` if the value of a field is not of the type that the dataclass declares for this field.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Count:
    ...     rounds: int
    >>> check_fields(Count, {"rounds": "many"})
    Traceback (most recent call last):
        ...
    flanders.checks.InputError: Count.rounds must be int. Got str instead.
    """
    hints = _hints(cls)
    for name, value in fields.items():
        hint = hints.get(name, Any)
        if not is_of_type(value, hint):
            wanted = hint.__name__ if isinstance(hint, type) else hint
            raise InputError(f"{cls.__name__}.{name} must be {wanted}. Got {type(value).__name__} instead.")


def is_of_type(value: object, hint: object) -> bool:
    """Whether a value is of the type `hint`. For types that this function does not know, the result is True.

    Examples
    --------
    >>> is_of_type({"a": 1}, dict[str, int]), is_of_type((1, "b"), tuple[int, ...])
    (True, False)
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(is_of_type(value, option) for option in inner)
    if hint is None or hint is type(None):
        return value is None
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(inner) == 2 and inner[1] is Ellipsis:
            return all(is_of_type(item, inner[0]) for item in value)
        return len(value) == len(inner) and all(map(is_of_type, value, inner))
    if origin is list:
        return isinstance(value, list) and all(is_of_type(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            is_of_type(key, inner[0]) and is_of_type(item, inner[1]) for key, item in value.items()
        )
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _has_kind(value, inner)
    if hint is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and origin is None else True


def _has_kind(array: NDArray[np.generic], inner: Sequence[object]) -> bool:
    """Whether an array has the declared dtype, and holds booleans, integers or floats.

    `inner` are the arguments of `np.ndarray` in the type hint.
    """
    declared = [get_origin(hint) or hint for hint in (get_args(inner[-1]) if inner else ())]
    fits = not declared or not isinstance(declared[0], type) or issubclass(array.dtype.type, declared[0])
    return fits and array.dtype.kind in "biuf"


@cache
def _hints(cls: type) -> dict[str, object]:
    """Return the declared types of the fields of a dataclass. The result is empty if Python cannot resolve them."""
    try:
        hints = get_type_hints(cls)
    except Exception:  # e.g. a name that is imported for type checkers only
        return {}
    return {field.name: hints.get(field.name, Any) for field in dataclasses.fields(cls)}
