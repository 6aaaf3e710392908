"""The grid of a spec: all combinations of the values in its lists.

Each list in a spec is an axis of the grid. Each point of the grid is a spec with one value of each list. If the
value of a parameter is itself a list, put it into another list: `layer_sizes = [[784, 10]]` is an axis with the one
value `[784, 10]`. A list of tables is an axis as well. The tables in it may contain further axes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from flanders.checks import InputError
from flanders.results.tree import Table

TOO_MUCH = "its tables or lists are nested too deeply, or a number has too many digits"
"""The end of an error message if Python's TOML parser gives up."""
MOST_BYTES = 16 * 2**20
"""The most bytes that a spec may have. Otherwise a file without an end, like /dev/zero, would fill the memory."""
LARGEST = 100_000
"""The most runs that one spec may have. A spec with more runs is probably a mistake."""
DEEPEST = 20
"""The most parts that a dotted key of `--set` may have. A longer key is a mistake, since the tables of a spec are
only a few levels deep."""


def read_toml(path: Path) -> Table:
    """Return the content of a spec file. Raise an error if the file cannot be read."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise InputError(f"{path} is too large for a spec: at most {MOST_BYTES:,} bytes. Name a TOML file.")
        return tomllib.loads(content.decode())
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Name a TOML file.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Name the spec files in it, e.g. {path}/*.toml.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        hint = (
            f" `flanders resume {path}` continues the runs of a results file." if path.suffix == ".sqlite" else ""
        )
        raise InputError(f"{path} is not a TOML file: it is not UTF-8 text.{hint}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path} is not a spec: {TOO_MUCH}.") from error


def expand(tree: Table, place: str = "spec") -> list[Table]:
    """Return all points of a spec's grid. `place` is the name of the spec in errors.

    The points come in the order of nested loops over the lists of the spec. The last list is the inner loop.

    Examples
    --------
    >>> expand({"attack": [{"name": "lie"}, {"name": "gauss", "sigma": [1, 5]}], "seed": 0})
    [{'attack': {'name': 'lie'}, 'seed': 0},
     {'attack': {'name': 'gauss', 'sigma': 1}, 'seed': 0},
     {'attack': {'name': 'gauss', 'sigma': 5}, 'seed': 0}]
    >>> expand({"layer_sizes": [[784, 10]]})
    [{'layer_sizes': [784, 10]}]
    """
    size = _size(tree, place)
    if size > LARGEST:
        raise InputError(f"{place} asks for {size:,} runs, more than {LARGEST:,}. Shorten its lists.")
    return list(_points(tree))


def _size(tree: Table, place: str) -> int:
    """Return how many points the grid of a table has."""
    total = 1
    for key, value in tree.items():
        where = f"{place}: {key}" if ": " not in place else f"{place}.{key}"
        if isinstance(value, list):
            if not value:
                raise InputError(f"{where} is an empty list, so there is nothing to run. Leave it out.")
            total *= sum(_size(v, where) if isinstance(v, dict) else 1 for v in value)
        elif isinstance(value, dict):
            total *= _size(value, where)
    return total


def _points(tree: Table) -> Iterator[Table]:
    for values in product(*(list(_values(value)) for value in tree.values())):
        yield dict(zip(tree, values, strict=True))


def _values(value: object) -> Iterator[object]:
    """Yield all values that a key takes in the grid."""
    if isinstance(value, dict):
        yield from _points(value)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict):
                yield from _points(item)
            else:
                yield item
    else:
        yield value


def parse_override(text: str) -> tuple[list[str], object]:
    """Split `key.path=value`, an argument of `--set`. Return a list of the parts of the key, and the value.

    The value is TOML. A word without quotes is a string.

    Examples
    --------
    >>> parse_override("federation.seed=[0, 1]"), parse_override("threat.attack=lie")
    ((['federation', 'seed'], [0, 1]), (['threat', 'attack'], 'lie'))
    """
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise InputError(f"--set needs key=value, e.g. --set federation.rounds=3. Got {text[:200]!r}.")
    if len(path) > DEEPEST:
        raise InputError(
            f"--set {key[:60]}...: the key has {len(path)} parts. No key of a spec has more than {DEEPEST}."
        )
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except RecursionError as error:
        raise InputError(f"--set {key[:60]}: {TOO_MUCH}.") from error
    except ValueError as error:
        if re.fullmatch(r"\s*[A-Za-z][\w.-]*\s*", value):
            return path, value.strip()
        raise InputError(
            f"--set {key}: {value.strip()!r} is not a TOML value ({error}). "
            "Strings need quotes inside the quotes of the shell, e.g. --set 'threat.attack=\"lie\"'."
        ) from error


def override(tree: Table, path: list[str], value: object) -> Table:
    """Return the spec with one key set. If the key leads into a list of tables, it is set in each table."""
    head, *rest = path
    if not rest:
        return {**tree, head: value}
    below = tree.get(head, {})
    branches = below if isinstance(below, list) else [below]
    changed = [override(b if isinstance(b, dict) else {"name": b}, rest, value) for b in branches]
    return {**tree, head: changed if isinstance(below, list) else changed[0]}


def blame_override(error: InputError, place: str, overrides: Sequence[str]) -> InputError:
    """If the wrong key was set with `--set`, return an error that names `--set` instead of the spec.

    Otherwise return the error unchanged. `overrides` has the arguments of `--set`.

    Examples
    --------
    >>> blame_override(InputError("a.toml: federation.rounds must be ..."), "a.toml", ["federation.rounds=x"])
    InputError('--set federation.rounds must be ...')
    """
    rest = str(error).removeprefix(f"{place}: ")
    for text in overrides:
        key = text.partition("=")[0].strip()
        table, _, name = key.rpartition(".")
        if re.match(rf"{re.escape(key)}(?![\w-])", rest):
            return InputError(f"--set {rest}")
        if rest.startswith(f"{table}: ") and f"`{name}`" in rest:
            return InputError(f"--set {key}: {rest.removeprefix(f'{table}: ')}")
        if rest.startswith(f"there is no table {key.partition('.')[0]!r}"):
            return InputError(f"--set {key}: {rest}")
    return error
