"""A filter's memory (or an attack's) in one file and back, bit for bit.

The file is a NumPy `.npz` archive: the arrays, and their arrangement as JSON. Nothing in it is
executed when it is read.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, to_numpy
from flanders.checks import InputError

FORMAT = "flanders-state-1"
C = TypeVar("C", bound=type)
_TYPES: dict[str, type] = {}


def saveable(cls: C) -> C:
    """Allow instances of a dataclass to be saved as, or inside, a state."""
    _TYPES[cls.__name__] = cls
    return cls


def save_state(path: str | os.PathLike[str], state: Any) -> None:
    """Write a state to a file, all of it or, if anything fails, none of it."""
    arrays: list[NDArray[Any]] = []
    tree = {"format": FORMAT, "state": _encode(state, arrays)}
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, tree=text, **{f"a{i}": a for i, a in enumerate(arrays)})  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_state(path: str | os.PathLike[str], like: Array = None) -> Any:
    """Read a state back.

    `like` is any array of the library and device on which the rounds run; a state that was
    saved from NumPy rounds needs none.
    """
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            tree = json.loads(bytes(file["tree"]))
            arrays = {name: file[name] for name in file.files if name != "tree"}
    except FileNotFoundError:
        raise InputError(f"There is no state file at {path}.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a readable state file ({error}). Restore it from a copy.") from error
    found = tree.get("format") if isinstance(tree, dict) else None
    if found != FORMAT:
        raise InputError(f"{path} has the format {found!r}; this version reads {FORMAT!r}.")
    try:
        return _decode(tree["state"], arrays, like)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} does not hold what this version remembers ({type(error).__name__}: {error}). Load it with the "
            "version that wrote it, or start from an empty memory."
        ) from error


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"float": value.hex()} if isinstance(value, float) else value
    if array_api_compat.is_array_api_obj(value) and not getattr(value.dtype, "hasobject", False):
        library = type(value).__module__.partition(".")[0]
        arrays.append(to_numpy(value))
        return {"array": f"a{len(arrays) - 1}", "library": library}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_encode(v, arrays) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[_encode(k, arrays), _encode(v, arrays)] for k, v in value.items()]}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _TYPES:
        fields = {f.name: _encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value)}
        return {"type": type(value).__name__, "fields": fields}
    raise InputError(
        f"A state may hold numbers, strings, arrays, tuples, lists, dicts and dataclasses marked @saveable; "
        f"got {type(value).__name__}."
    )


def _decode(value: Any, arrays: dict[str, NDArray[Any]], like: Array) -> Any:
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        if value["library"] == "numpy":
            return array
        if like is None or type(like).__module__.partition(".")[0] != value["library"]:
            raise InputError(
                f"This state was saved from {value['library']} arrays. Pass `like=` one of them, on the device "
                "where the rounds run."
            )
        xp = array_api_compat.array_namespace(like)
        return xp.asarray(array, device=array_api_compat.device(like))
    if "float" in value:
        return float.fromhex(value["float"])
    if "tuple" in value:
        return tuple(_decode(v, arrays, like) for v in value["tuple"])
    if "list" in value:
        return [_decode(v, arrays, like) for v in value["list"]]
    if "dict" in value:
        return {_decode(k, arrays, like): _decode(v, arrays, like) for k, v in value["dict"]}
    fields = {name: _decode(v, arrays, like) for name, v in value["fields"].items()}
    return _TYPES[value["type"]](**fields)
