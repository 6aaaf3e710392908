"""Functions that save a state to a file, and load it again bit for bit.

The *state* of a filter, an attack or a `Defense` is what it remembers from one round to the next. The file is a
NumPy `.npz` archive. It holds the large arrays, and everything else as JSON. Loading it executes no code from the
file. The file also holds a digest of its content, so that a damaged file is refused.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable
from typing import Any, BinaryIO, TypeVar

import array_api_compat
import numpy as np
from numpy.typing import NDArray

from flanders.arrays import Array, to_numpy
from flanders.checks import InputError
from flanders.files import atomic
from flanders.state_types import check_fields

FORMAT = "flanders-state-3"
"""The version of the file format. Files of another version are refused."""
SMALL = 256
"""An array of at most this many bytes is saved as text in the JSON. Writing a separate file into the archive takes
longer."""
C = TypeVar("C", bound=type)
_TYPES: dict[str, type] = {}  # the dataclasses that are marked with `saveable`, by name


def saveable(cls: C) -> C:
    """Mark a dataclass, so that its instances can be saved in a state. Use this function as a decorator."""
    _TYPES[cls.__name__] = cls
    return cls


def save_state(path: str | os.PathLike[str], state: object) -> None:
    """Write a state to a file. If writing fails, the old file at `path` stays as it was."""
    with atomic(path, private=True) as file:  # a state holds the filter's seed, which must stay secret
        _write(file, state)


def load_state(path: str | os.PathLike[str], like: Array = None) -> Any:
    """Return the state in a file.

    `like` is needed if the state was saved with arrays of PyTorch, CuPy or JAX. Pass any array of the same library,
    on the device on which the rounds run.
    """
    try:
        with open(path, "rb") as file:
            return _read(file, str(path), like)
    except FileNotFoundError:
        raise InputError(f"There is no state file at {path}.") from None
    except OSError as error:
        raise _unreadable(str(path), error) from error


def state_to_bytes(state: object) -> bytes:
    """Return the bytes that `save_state` would write."""
    buffer = io.BytesIO()
    _write(buffer, state)
    return buffer.getvalue()


def state_from_bytes(data: bytes, like: Array = None) -> Any:
    """Return the state that `state_to_bytes` has turned into `data`. `load_state` explains `like`."""
    return _read(io.BytesIO(data), "The saved state", like)


def _write(file: BinaryIO, state: object) -> None:
    """Write a state to an open file: an archive member for each large array, and one for the JSON, `tree.npy`."""
    arrays: list[NDArray[Any]] = []
    encoded = _encode(state, arrays)
    with zipfile.ZipFile(file, "w") as archive:
        for i, array in enumerate(arrays):
            _write_array(archive, f"a{i}.npy", array)
        checksums = [member.CRC for member in archive.infolist()]
        tree = {"format": FORMAT, "digest": digest_of(encoded, checksums), "state": encoded}
        _write_array(archive, "tree.npy", np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8))


def _write_array(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    """Add an array to an archive in NumPy's format, without copying its numbers."""
    plain = np.ascontiguousarray(array).reshape(array.shape)
    with archive.open(name, "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(plain))
        member.write(plain.reshape(-1).view(np.uint8).data)


def _read(file: BinaryIO, name: str, like: Array) -> Any:
    """Return the state in an open file. `name` is what error messages call the file."""
    try:
        _check_size(file)
        with np.load(file, allow_pickle=False) as archive:
            tree = json.loads(bytes(archive["tree"]))
            arrays = {key: archive[key] for key in archive.files if key != "tree"}
            checksums = [archive.zip.getinfo(f"a{i}.npy").CRC for i in range(len(arrays))]
    except Exception as error:  # a damaged archive can raise many kinds of errors
        raise _unreadable(name, error) from error
    file_format = tree.get("format") if isinstance(tree, dict) else None
    if file_format != FORMAT:
        raise InputError(
            f"{name} has the format {file_format!r}, but this version reads {FORMAT!r}. Load it with the version "
            "that wrote it, or start with an empty memory."
        )
    try:
        if tree["digest"] != digest_of(tree["state"], checksums):
            raise InputError(f"{name} was changed after it was saved. Restore it from a copy.")
        return _decode(tree["state"], arrays, like)
    except InputError as error:
        raise error if str(error).startswith(name) else InputError(f"{name}: {error}") from error
    except Exception as error:  # a file from elsewhere can raise any kind of error
        raise InputError(
            f"{name} holds a memory that this version cannot read ({type(error).__name__}: {error}). Load it with "
            "the version that wrote it, or start with an empty memory."
        ) from error


def digest_of(encoded: object, checksums: Iterable[int]) -> str:
    """Return a SHA-256 digest of a state. It shows accidental damage. It is no protection against forged files.

    `encoded` is the state as it is written to the JSON. `checksums` are those of the large arrays, from the
    archive.
    """
    return hashlib.sha256(json.dumps([encoded, *checksums]).encode()).hexdigest()


def _check_size(file: BinaryIO) -> None:
    """Raise an `InputError` if an archive is compressed. It is then smaller than its content.

    `save_state` never compresses. A small compressed file of an attacker could unpack to more than the memory
    holds.
    """
    start = file.tell()
    size = file.seek(0, io.SEEK_END)
    file.seek(start)
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    file.seek(start)
    if unpacked > size:
        raise InputError(f"it has {size:,} bytes and unpacks to {unpacked:,}")


def _unreadable(name: str, error: Exception) -> InputError:
    return InputError(f"{name} is not a readable state file ({error}). Restore it from a copy.")


def _encode(value: object, arrays: list[NDArray[Any]]) -> object:
    """Return a value in a form that JSON can hold. Append the large arrays to `arrays`.

    In the returned form, each large array is replaced by its name.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"float": value.hex()} if isinstance(value, float) else value
    if array_api_compat.is_array_api_obj(value) and not getattr(getattr(value, "dtype", None), "hasobject", False):
        library, numbers = type(value).__module__.partition(".")[0], to_numpy(value)
        if numbers.nbytes <= SMALL:
            text = base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()
            return {"small": text, "dtype": numbers.dtype.str, "shape": list(numbers.shape), "library": library}
        arrays.append(numbers)
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
    """Return the original of `value`, which `_encode` has made. `arrays` has the large arrays by name."""
    if not isinstance(value, dict):
        return value
    if "small" in value:
        data = base64.b64decode(value["small"], validate=True)
        array = np.frombuffer(data, np.dtype(value["dtype"])).reshape(value["shape"]).copy()
    elif "array" in value:
        array = arrays[value["array"]]
    if "library" in value:
        if value["library"] == "numpy":
            return array
        if like is None or type(like).__module__.partition(".")[0] != value["library"]:
            raise InputError(
                f"This state was saved from {value['library']} arrays. Pass such an array as `like`, on the device "
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
    cls = _TYPES[value["type"]]
    check_fields(cls, fields)
    return cls(**fields)
