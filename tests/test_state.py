from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib

import numpy as np
import pytest
import torch

from flanders import Defense, Flanders, InputError, load_state, save_state, state_from_bytes, state_to_bytes
from flanders import state as module


@pytest.fixture
def state(rng):
    defense = Defense(Flanders(keep=3), seed=0)
    for _ in range(3):
        outcome = defense(rng.normal(size=(4, 5)), ("a", "b", "c", 7))
    return outcome.state


def test_a_failed_write_leaves_the_old_file_and_no_litter(state, tmp_path, monkeypatch):
    path = tmp_path / "memory.npz"
    save_state(path, state)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        save_state(path, state)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["memory.npz"]


def test_a_damaged_or_missing_file_is_named(tmp_path, state):
    with pytest.raises(InputError, match=r"no state file at .*missing"):
        load_state(tmp_path / "missing.npz")
    path = tmp_path / "memory.npz"
    save_state(path, state)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"not a readable state file.*Restore it"):
        load_state(path)


def test_another_format_is_refused(tmp_path, state, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", "flanders-state-9")
    save_state(tmp_path / "memory.npz", state)
    monkeypatch.undo()
    with pytest.raises(InputError, match="flanders-state-9"):
        load_state(tmp_path / "memory.npz")


def test_tensors_need_a_place_to_go(tmp_path):
    save_state(tmp_path / "s.npz", {"x": torch.ones(2), 3: (1.5, None, True)})
    with pytest.raises(InputError, match="saved from torch arrays"):
        load_state(tmp_path / "s.npz")
    loaded = load_state(tmp_path / "s.npz", like=torch.zeros(1))
    assert loaded["x"].dtype == torch.float32
    assert loaded[3] == (1.5, None, True)


def test_what_cannot_be_saved_says_so(tmp_path):
    with pytest.raises(InputError, match="got function"):
        save_state(tmp_path / "s.npz", {"f": lambda: 0})
    assert list(tmp_path.iterdir()) == []


def test_floats_come_back_exactly(tmp_path):
    values = (0.1, 1e-320, np.pi, float("inf"))
    save_state(tmp_path / "s.npz", values)
    assert load_state(tmp_path / "s.npz") == values


def test_a_new_state_takes_the_place_of_the_old_file_and_is_not_written_into_it(state, tmp_path):
    path, old = tmp_path / "memory.npz", tmp_path / "same-file.npz"
    save_state(path, state)
    os.link(path, old)
    before = old.read_bytes()
    save_state(path, (1, 2))
    assert old.read_bytes() == before
    assert load_state(path) == (1, 2)


def test_numpy_numbers_come_back_as_plain_ones(tmp_path):
    save_state(tmp_path / "s.npz", (np.int64(3), np.float32(2.5), np.bool_(True)))
    loaded = load_state(tmp_path / "s.npz")
    assert loaded == (3, 2.5, True)
    assert [type(value) for value in loaded] == [int, float, bool]


def test_an_array_of_objects_cannot_be_saved(tmp_path):
    with pytest.raises(InputError, match="got ndarray"):
        save_state(tmp_path / "s.npz", np.array([1, None], dtype=object))


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ([1, 2], "has the format None"),
        ({"format": module.FORMAT}, "holds a memory that this version cannot read .*'digest'"),
        ({"format": module.FORMAT, "state": {}}, "holds a memory that this version cannot read"),
        ({"format": module.FORMAT, "state": {"type": "Gone", "fields": {}}}, "Gone.*start with an empty memory"),
        (
            {"format": module.FORMAT, "state": {"type": "DnCState", "fields": {"seed": 1, "new": 2}}},
            "argument 'new'",
        ),
        ({"format": module.FORMAT, "state": {"array": "a7", "library": "numpy"}}, "a7.*the version that wrote it"),
    ],
    ids=str,
)
def test_a_file_of_another_version_says_what_it_lacks(tmp_path, tree, says):
    if "state" in tree:
        tree = {**tree, "digest": hashlib.sha256(json.dumps([tree["state"]]).encode()).hexdigest()}
    text = np.frombuffer(json.dumps(tree).encode(), dtype=np.uint8)
    np.savez(tmp_path / "s.npz", tree=text)
    with pytest.raises(InputError, match=says):
        load_state(tmp_path / "s.npz")


@pytest.mark.parametrize("part", ["a number", "the tree"])
def test_a_file_that_was_changed_after_it_was_saved_is_refused(tmp_path, part):
    path = tmp_path / "s.npz"
    save_state(path, {"x": np.arange(400.0), "n": 1})
    with np.load(path) as archive:
        tree, numbers = bytes(archive["tree"]), archive["a0"]
    if part == "a number":
        numbers[2] = 7.0
    else:
        tree = tree.replace(b'["n", 1]', b'["n", 2]')
    np.savez(path, tree=np.frombuffer(tree, np.uint8), a0=numbers)
    with pytest.raises(InputError, match="was changed after it was saved"):
        load_state(path)


def test_a_file_that_unpacks_to_more_than_its_size_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "s.npz", tree=np.zeros(10**6, np.uint8))
    with pytest.raises(InputError, match=r"unpacks to 1,000,\d\d\d"):
        load_state(tmp_path / "s.npz")


def test_a_state_can_go_through_bytes(state, tmp_path):
    data = state_to_bytes(state)
    save_state(tmp_path / "s.npz", state)
    assert (tmp_path / "s.npz").read_bytes() == data
    assert state_to_bytes(state_from_bytes(data)) == data
    with pytest.raises(InputError, match=r"The saved state is not a readable state file"):
        state_from_bytes(data[:50])
    with pytest.raises(InputError, match=r"Pass such an array as `like`"):
        state_from_bytes(state_to_bytes({"x": torch.ones(2)}))


def test_a_state_file_is_for_its_owner_alone(state, tmp_path):
    save_state(tmp_path / "s.npz", state)
    assert (tmp_path / "s.npz").stat().st_mode & 0o077 == 0


def rezipped(path, change):
    """Take a state file apart, let `change` alter the archive's bytes or members, and put it together again."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    path.write_bytes(change(bytearray(buffer.getvalue())))


def with_method(data, method):
    place = data.rfind(b"PK\x01\x02")
    data[place + 10] = method
    return data


def with_broken_stream(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        info = archive.infolist()[0]
    start = info.header_offset + 30 + len(info.filename)
    data[start : start + 8] = b"\xff" * 8
    return data


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: with_method(data, 99), NotImplementedError),
        (with_broken_stream, zlib.error),
    ],
    ids=["unknown compression", "broken stream"],
)
def test_whatever_a_broken_archive_raises_becomes_one_sentence(state, tmp_path, change, error, monkeypatch):
    monkeypatch.setattr(module, "_check_size", lambda file: None)  # it would find some of these files first
    save_state(tmp_path / "s.npz", state)
    rezipped(tmp_path / "s.npz", change)
    with pytest.raises(InputError, match="is not a readable state file") as caught:
        load_state(tmp_path / "s.npz")
    causes, cause = [], caught.value
    while cause is not None:
        causes.append(type(cause))
        cause = cause.__cause__ or cause.__context__
    assert error in causes


def test_a_tree_of_a_hundred_thousand_levels_becomes_one_sentence(tmp_path):
    for text in (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
        np.savez(tmp_path / "s.npz", tree=np.frombuffer(text, dtype=np.uint8))
        with pytest.raises(InputError, match="is not a readable state file"):
            load_state(tmp_path / "s.npz")


def test_every_changed_byte_of_the_numbers_is_found(tmp_path):
    numbers = np.arange(50.0)
    save_state(tmp_path / "s.npz", {"a": numbers})
    data = (tmp_path / "s.npz").read_bytes()
    start = data.index(numbers.tobytes())
    for place in range(start, start + numbers.nbytes, 7):
        (tmp_path / "s.npz").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(InputError, match=r"s\.npz"):
            load_state(tmp_path / "s.npz")


@pytest.mark.parametrize(
    "array",
    [np.array(3.5), np.zeros((0, 3)), np.arange(12.0).reshape(3, 4).T, np.array([True]), np.arange(3, dtype=">i4")],
)
def test_arrays_of_all_forms_come_back(tmp_path, array):
    save_state(tmp_path / "s.npz", {"a": array})
    found = load_state(tmp_path / "s.npz")["a"]
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)
