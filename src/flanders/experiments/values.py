"""From the values of a TOML table to the fields of a dataclass, checked against their annotations, and back."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flanders.attacks import Attack
from flanders.catalog import ATTACKS
from flanders.checks import InputError, did_you_mean

T = TypeVar("T")
COUNT_OR_FRACTION = frozenset({"keep", "num_malicious", "trim", "per_round"})
"""Parameters in which the int 1 (one client) is not the float 1.0 (all of them)."""
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
    tuple: "a list",
    type(None): '"none"',
}


def fill(cls: type[T], table: Mapping[str, Any], where: str, counts: Mapping[str, int] | None = None) -> T:
    """Build a dataclass from a table; every problem names the key it lies in.

    `counts` are the words that stand for a number of clients ("b", "m-b").
    """
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            known = f"Known: {', '.join(fields)}." if fields else "There are none to set."
            raise InputError(f"{where}.{key}: there is no such parameter.{did_you_mean(key, fields)} {known}")
    missing = [name for name, field in fields.items() if name not in table and _required(field)]
    if missing:
        raise InputError(f"{where}: a value is needed for {', '.join(missing)}.")
    hints = typing.get_type_hints(cls)
    values = {key: convert(value, hints[key], f"{where}.{key}", counts) for key, value in table.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def convert(value: Any, hint: Any, where: str, counts: Mapping[str, int] | None = None) -> Any:
    """Return a TOML value as what the annotation asks for."""
    allowed = _kinds(hint)
    if Any in allowed:
        return value
    if Attack in allowed:
        return _attack(value, where)
    if isinstance(value, str) and counts and value in counts and allowed.keys() & {int, float}:
        return counts[value]
    if isinstance(value, str) and str not in allowed:
        if value == "none" and type(None) in allowed:
            return None
        if Path in allowed:
            return Path(value)
    if value is None and type(None) in allowed:
        return None
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{where} is nan, which is not a number. Give a value.")
    if type(value) is int and int not in allowed and float in allowed:
        return value if where.rpartition(".")[2] in COUNT_OR_FRACTION else float(value)
    if isinstance(value, list | tuple) and tuple in allowed:
        inner = allowed[tuple]
        return tuple(convert(v, inner, f"{where}[{i}]", counts) for i, v in enumerate(value))
    if type(value) in allowed and value in (allowed[type(value)] or [value]):
        return value
    words = (", ".join(map(repr, only)) if kind is str and only else _WORDS.get(kind, "something else")
             for kind, only in allowed.items())  # fmt: skip
    wanted = " or ".join(dict.fromkeys(words))
    also = f", or one of {', '.join(map(repr, counts))}" if counts and allowed.keys() & {int, float} else ""
    raise InputError(f"{where} must be {wanted}{also}. Got {value!r} instead.{_tip(value)}")


def _attack(value: Any, where: str) -> Attack:
    """Return the attack of a name, or of a table of its name and parameters."""
    table = {"name": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise InputError(f"{where} must be the name of an attack, or a table with its name. Got {value!r} instead.")
    try:
        cls = ATTACKS[table["name"]]
    except InputError as error:
        raise InputError(f"{where}.name: {error}") from error
    return fill(cls, {key: v for key, v in table.items() if key != "name"}, where)


def plain(value: Any, where: str) -> Any:
    """Return a field's value as JSON has it."""
    if isinstance(value, Attack):
        return {"name": ATTACKS.name_of(value), **fields_of(value, where)}
    if isinstance(value, tuple | list):
        return [plain(v, where) for v in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"{where}: {value!r} cannot be written in a spec.")


def fields_of(instance: Any, where: str) -> dict[str, Any]:
    """Return all fields of a dataclass, defaults included, as JSON has them."""
    return {f.name: plain(getattr(instance, f.name), f"{where}.{f.name}") for f in dataclasses.fields(instance)}


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _kinds(hint: Any) -> dict[Any, Any]:
    """Return the plain types that an annotation allows; of a sequence also what it holds, of words which ones."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {kind: inner for arg in args for kind, inner in _kinds(arg).items()}
    if origin is typing.Literal:
        return {type(arg): args for arg in args}
    if origin in (tuple, list, Sequence):
        return {tuple: args[0] if args else Any}
    if hint in (tuple, list):
        return {tuple: Any}
    return {hint: None}


def _tip(value: Any) -> str:
    if isinstance(value, dict):
        return " It is not a table."
    if isinstance(value, list):
        return " A list inside a list is one value that is a list."
    return ""
