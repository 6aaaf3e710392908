"""Writing files whole or not at all."""

from __future__ import annotations

import os
import stat

import pytest

from flanders.checks import InputError
from flanders.files import atomic, check_target, write_atomically, writing


def test_a_file_is_replaced_when_the_block_ends(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    with atomic(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_failed_block_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "report.html"
    write_atomically(path, "old")
    with pytest.raises(TypeError), atomic(path) as file:
        file.writelines([b"half", None])
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_file_and_then_its_folder_are_flushed_to_the_disk(tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (flushed.append(stat.S_ISDIR(os.fstat(fd).st_mode)), fsync(fd)))
    write_atomically(tmp_path / "a", b"\x00")
    assert flushed == [False, True]


def test_others_may_read_a_file_unless_it_is_private(tmp_path):
    mask = os.umask(0o022)
    try:
        write_atomically(tmp_path / "open", "é")
        write_atomically(tmp_path / "private", "é", private=True)
    finally:
        os.umask(mask)
    assert (tmp_path / "open").read_bytes() == "é".encode()
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/inside cannot be written: .*Choose another place"):  # noqa: SIM117
        with writing(tmp_path / "file" / "inside"):
            pass
    with pytest.raises(InputError, match="there is no folder"):
        check_target(tmp_path / "missing" / "x.csv")


def test_results_are_never_overwritten_by_another_file(tmp_path):
    (tmp_path / "results.db").write_bytes(b"SQLite format 3\0rest")
    with pytest.raises(InputError, match="holds results, which would be overwritten"):
        check_target(tmp_path / "results.db")
    check_target(tmp_path / "other.db")
