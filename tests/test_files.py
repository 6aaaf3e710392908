"""Writing files whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from flanders import files
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


def age(folder):
    """Make all files in a folder an hour old."""
    for path in folder.iterdir():
        os.utime(path, (0, path.stat().st_mtime - 3600))


WRITE = """
import sys, time
from flanders.files import atomic
with atomic(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    time.sleep(3600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such locks")
def test_what_a_killed_process_left_is_removed_by_the_next_writer_and_live_files_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "YOUNGEST", 1800.0)  # however long the writers take to start
    path = tmp_path / "state.npz"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, path], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "half\n"
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        (tmp_path / ".state.npz.0123456x.part").write_text("somebody else's")
        assert len(list(tmp_path.iterdir())) == 3
        write_atomically(path, "new")
        assert (
            len(list(tmp_path.iterdir())) == 4
        )  # too young: it might belong to a process that is about to lock it
        age(tmp_path)
        write_atomically(path, "newer")
        assert path.read_text() == "newer"
        assert len(list(tmp_path.iterdir())) == 3  # the file, the one of the living process, and a stranger's
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
            writer.stdout.close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out.csv").symlink_to(tmp_path / "precious")
    write_atomically(tmp_path / "out.csv", "new")
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "out.csv").is_symlink()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes with names")
def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "out.csv")
    with pytest.raises(InputError, match="it is no plain file"):
        check_target(tmp_path / "out.csv")
