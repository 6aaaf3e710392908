"""Makes a JSON Schema of spec files. With it, a text editor can check a spec, and suggest keys and values.

The schema is made from the fields of `Setting`, from the registries (the tables of attacks, filters and so on), and
from the docstrings. Except in the table `run`, any value may be a list. Such a list is an axis of the grid of runs:
there is a run for each value in it.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from flanders.choices import KINDS, AnyRegistry, registry
from flanders.experiments.annotations import Allowed, Hint, allowed_by, fields_of, hints_of
from flanders.experiments.filling import COUNTS, NONE, PREAGGREGATORS
from flanders.registry import first_paragraph
from flanders.simulation.setting import Data, Setting

Schema = dict[str, Any]
"""A JSON Schema, or a part of it."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}


def spec_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a spec file."""
    parts: Schema = {}
    for kind in KINDS:
        entries = registry(kind)
        parts[kind] = _choice(entries, kind)
        parts |= {f"{kind}.{name}": _entry(name, entries, kind) for name in entries}
    return {"$schema": DIALECT, "title": "A spec of flanders", **_record(Setting), "$defs": parts}


def _record(cls: type[object], *, axes: bool = True) -> Schema:
    """Return the schema of a table with the fields of a dataclass. With `axes`, its values may be lists, too."""
    texts, hints = parameter_texts(cls), hints_of(cls)
    properties = {
        field.name: {**_value(hints[field.name], axes=axes and field.name != "run"), **_about(field, texts)}
        for field in fields_of(cls)
    }
    schema = {"type": "object", "description": first_paragraph(cls), "properties": properties}
    if cls is Data:  # parameters of the dataset and of the partition are also allowed in this table
        beside: Schema = {name: {} for kind in ("datasets", "partitions") for name in _parameters(registry(kind))}
        schema["properties"] = {**beside, **properties}
    return {**schema, "additionalProperties": False}


def _value(hint: Hint, *, axes: bool) -> Schema:
    """Return the schema of a value. With `axes`, a list of such values is allowed as well."""
    allowed = allowed_by(hint)
    single = _single_value(allowed, axes=axes)
    return {"anyOf": [single, {"type": "array", "items": single, "minItems": 1}]} if axes and single else single


def _single_value(allowed: Allowed, *, axes: bool) -> Schema:
    """Return the schema of a value that is not an axis. With `axes`, tables inside the value may have axes."""
    if allowed.anything:
        return {}
    forms: list[Schema] = []
    if allowed.kind:
        forms.append({"$ref": f"#/$defs/{allowed.kind}"})
    elif allowed.entries is not None:
        forms.append(_choice(allowed.entries, ""))
    if allowed.record is not None:
        forms.append(_record(allowed.record, axes=axes and allowed.record.__name__ != "Options"))
    if allowed.values is not None:
        forms.append({"type": "object", "additionalProperties": _value(allowed.values, axes=axes)})
    if allowed.items is not None:
        forms.append({"type": "array", "items": _single_value(allowed_by(allowed.items), axes=False)})
    if allowed.words:
        forms.append({"enum": list(allowed.words)})
    else:
        forms += [{"type": name} for kind, name in _TYPES.items() if kind in allowed.plain]
    if allowed.number and axes and str not in allowed.plain:
        forms.append({"enum": list(COUNTS)})
    if allowed.none and str not in allowed.plain:
        forms.append({"const": NONE})
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _choice(entries: AnyRegistry, kind: str) -> Schema:
    """Return the schema of an entry that is chosen by its name: the name, or a table of the name and parameters."""
    names = list(entries)
    one_name: Schema = {"oneOf": [{"const": name, "description": entries.describe(name).summary} for name in names]}
    tables = [{"$ref": f"#/$defs/{kind}.{name}"} if kind else _entry(name, entries, kind) for name in names]
    shared: Schema = {name: {} for name in _parameters(entries)} | _in_front(kind)
    several: Schema = {
        "description": "A list of names is an axis of the grid. A name with parameters is written as a table.",
        "anyOf": [
            {"type": "array", "items": {"anyOf": [one_name, *tables, {"const": NONE}]}, "minItems": 1},
            *tables,
        ],
    }
    axis = {
        "type": "object",
        "properties": {**shared, "name": several},
        "required": ["name"],
        "additionalProperties": False,
    }
    return {"anyOf": [one_name, *tables, axis]}


def _entry(name: str, entries: AnyRegistry, kind: str) -> Schema:
    """Return the schema of a table with the name and the parameters of one entry."""
    cls = entries[name]
    texts, hints = parameter_texts(cls), hints_of(cls)
    parameters = {
        field.name: {**_value(hints[field.name], axes=True), **_about(field, texts)} for field in fields_of(cls)
    }
    return {
        "type": "object",
        "description": entries.describe(name).summary,
        "properties": {"name": {"const": name}, **parameters, **_in_front(kind)},
        "required": ["name"],
        "additionalProperties": False,
    }


def _in_front(kind: str) -> Schema:
    """Return the schema of the key for pre-aggregators. It is empty for all kinds but aggregators."""
    if kind != "aggregators":
        return {}
    link = {"anyOf": [{"$ref": "#/$defs/preaggregators"}, {"const": NONE}]}
    chain = {"type": "array", "items": {"$ref": "#/$defs/preaggregators"}}
    text = (
        "The pre-aggregators, which prepare the updates for the aggregator. A list is an axis of the grid. Several "
        "pre-aggregators that follow each other are a list inside this list."
    )
    axis = {"type": "array", "items": {"anyOf": [link, chain]}, "minItems": 1}
    return {PREAGGREGATORS: {"description": text, "anyOf": [link, axis]}}


def _parameters(entries: AnyRegistry) -> list[str]:
    """Return the names of the parameters of all entries, each once."""
    return list(dict.fromkeys(field.name for cls in entries.values() for field in fields_of(cls)))


def _about(field: Field[Any], texts: dict[str, str]) -> Schema:
    """Return the description and the default of a field. `texts` has the descriptions by name."""
    about: Schema = {}
    if field.name in texts:
        about["description"] = texts[field.name]
    if field.default is not MISSING and isinstance(field.default, bool | int | float | str):
        about["default"] = field.default
    return about


def parameter_texts(cls: type[object]) -> dict[str, str]:
    """Return the description of each parameter, from the section `Parameters` of the docstring.

    Examples
    --------
    >>> from flanders.simulation import Federation
    >>> parameter_texts(Federation)["rounds"]
    'The number of rounds, T.'
    """
    section = re.search(r"Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", inspect.getdoc(cls) or "", re.DOTALL)
    texts: dict[str, str] = {}
    if section is None:
        return texts
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?:^[ \t]+.*\n?|^\n)+)", section[1], re.MULTILINE):
        for name in names.split(","):
            texts[name.strip()] = " ".join(text.split())
    return texts
