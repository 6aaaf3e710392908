from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from flanders.checks import InputError
from flanders.data.unpickling import STAND_INS, PickledArray, unpickle

PATH = Path("data_batch_1")


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_lists_strings_bytes_and_numbers_come_back(protocol):
    written = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2.5, None, "ü", b"x", (True,)]}
    found = unpickle(PATH, pickle.dumps(written, protocol))
    assert np.array_equal(found["data"], written["data"])
    assert found["labels"] == written["labels"]


def test_an_array_in_columns_comes_back():
    array = np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert np.array_equal(unpickle(PATH, pickle.dumps({"data": array}, 2))["data"], array)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_call_is_refused_and_not_made(tmp_path, protocol):
    target = tmp_path / "made"
    for malicious in (Calls(os.mkdir, str(target)), Calls(eval, f"__import__('os').mkdir({str(target)!r})")):
        with pytest.raises(InputError, match=r"data_batch_1.*not safe.*mkdir|data_batch_1.*not safe.*eval"):
            unpickle(PATH, pickle.dumps({"data": malicious}, protocol))
        assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # the textbook attack
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__class__\x93.",  # a way around by a dotted name
        b"cbuiltins\ngetattr\n.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"Pid\n.",  # a persistent id
        b"\x80\x02\x82\x01.",  # an extension code
        b"",
        b"garbage",
        b"\x80\x02]q\x00.",  # a list, where a dict should be
        b"\x80\x02r\xff\xff\xff\xff.",
    ],
)
def test_other_names_and_broken_pickles_are_refused(content):
    with pytest.raises(InputError, match="data_batch_1"):
        unpickle(PATH, content)


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, []], dtype=object),
        np.arange(3),
        np.zeros(2, dtype="u1,u1"),
        np.array(["a"]),
        np.zeros(3, bool),
    ],
)
def test_only_arrays_of_bytes_are_built(array):
    with pytest.raises(InputError, match="not safe"):
        unpickle(PATH, pickle.dumps({"data": array}, 2))


def test_an_array_larger_than_its_content_is_refused():
    written = pickle.dumps({"data": np.zeros(5, dtype=np.uint8)}, 2)
    with pytest.raises(InputError, match="does not fit"):
        unpickle(PATH, written.replace(b"K\x05\x85", b"K\x06\x85"))


@pytest.mark.parametrize(("module", "name"), list(STAND_INS))
def test_a_pickle_cannot_alter_what_stands_in_for_numpy(module, name):
    before = dict(vars(PickledArray))
    state = b"}S'__setstate__'\nNs"
    for build in (state + b"b.", b"N" + state + b"\x86b."):
        with pytest.raises(InputError):
            unpickle(PATH, b"\x80\x02c" + f"{module}\n{name}\n".encode() + build)
    assert dict(vars(PickledArray)) == before
