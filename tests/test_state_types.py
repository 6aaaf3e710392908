"""Types of saved values, compared with the declared ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flanders.checks import InputError
from flanders.state_types import check_fields, is_of_type

FLOATS = NDArray[np.floating[Any]]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, int),
        (1, float),
        (None, int | None),
        ("a", int | str),
        ((1, 2), tuple[int, ...]),
        ((1, "a"), tuple[int, str]),
        ({"a": (1.0,)}, dict[str, tuple[float, ...]]),
        (np.zeros(2, np.float32), FLOATS),
        (np.zeros(2), NDArray[np.generic]),
        (object(), Any),
        (3, object),
    ],
)
def test_right_values_fit(value, hint):
    assert is_of_type(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (True, int),
        (True, float),
        ("1", int),
        (1.5, int),
        (None, int),
        ([1], tuple[int, ...]),
        ((1, "a"), tuple[int, ...]),
        ((1,), tuple[int, str]),
        ({1: 1}, dict[str, int]),
        ({"a": "b"}, dict[str, int]),
        ([1], dict[str, int]),
        ((1,), list[int]),
        (np.zeros(2, np.int64), FLOATS),
        (np.zeros(2, complex), NDArray[np.generic]),
        (np.array(["x"]), NDArray[np.generic]),
        ([1.0], FLOATS),
    ],
)
def test_wrong_values_do_not(value, hint):
    assert not is_of_type(value, hint)


@dataclass(frozen=True)
class Memory:
    rounds: int = 0
    names: tuple[str, ...] = field(default_factory=tuple)


def test_the_field_is_named():
    check_fields(Memory, {"rounds": 1, "names": ("a",)})
    with pytest.raises(InputError, match=r"Memory\.names must be tuple\[str, \.\.\.\]\. Got tuple instead"):
        check_fields(Memory, {"names": (1,)})
