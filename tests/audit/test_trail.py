"""The audit trail: it survives kills and full disks, stays bounded, and keeps other writers out."""

from __future__ import annotations

import errno
import json
import os

import pytest

from flanders.audit import AuditTrail, Head, verify_trail
from flanders.checks import InputError

ABOUT = {"run": "a", "after_round": 0}


def round_(number, **more):
    return {"run": "a", "round": number, "model_before": str(number - 1), "model_after": str(number), **more}


def written(path, rounds, **options):
    """Return a closed trail with this many rounds."""
    trail = AuditTrail(path, **options)
    trail.open(ABOUT)
    for number in range(1, rounds + 1):
        trail.add("round", round_(number))
    trail.close()
    return trail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


def test_a_trail_is_lines_of_json_that_only_its_owner_can_read(path):
    trail = written(path, 2)
    entries = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert [(entry["entry"], entry["kind"]) for entry in entries] == [(1, "start"), (2, "round"), (3, "round")]
    assert [entry["previous"] for entry in entries[1:]] == [entry["hash"] for entry in entries[:-1]]
    assert str(trail.head) == f"3:{entries[-1]['hash']}"
    assert path.stat().st_mode & 0o077 == 0


def test_a_trail_goes_on_where_it_ended(path):
    head = written(path, 2).head
    again = AuditTrail(path)
    assert again.open({**ABOUT, "after_round": 2}, head) == []
    again.add("round", round_(3))
    again.close()
    check = verify_trail(path, [head, again.head])
    assert (check.intact, check.entries, check.rounds) == (True, 5, 3)


def test_a_line_that_was_cut_by_a_kill_is_removed_and_told(path):
    head = written(path, 2).head
    with open(path, "ab") as file:
        file.write(b'{"entry":4,"previous":"')
    assert not verify_trail(path).intact
    again = AuditTrail(path)
    again.open({**ABOUT, "after_round": 2}, head)
    again.close()
    assert verify_trail(path, [head]).intact
    assert json.loads(path.read_bytes().splitlines()[-1])["torn_bytes"] == 23


def test_entries_after_the_known_one_are_returned(path):
    trail = AuditTrail(path)
    trail.open(ABOUT)
    known = trail.add("round", round_(1))
    trail.add("round", round_(2))
    trail.close()
    assert [entry.fields["round"] for entry in AuditTrail(path).open({**ABOUT, "after_round": 1}, known)] == [2]


@pytest.mark.parametrize("damage", ["cut", "rewritten"])
def test_a_trail_without_the_known_entry_is_not_continued(path, damage):
    head = written(path, 3).head
    if damage == "cut":
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    else:
        path.unlink()
        other = AuditTrail(path)
        other.open({**ABOUT, "run": "another"})
        for number in range(1, 5):
            other.add("round", round_(number))
        other.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="cut or rewritten"):
        AuditTrail(path).open(ABOUT, head)
    assert path.read_bytes() == before


def test_a_damaged_trail_is_not_continued(path):
    written(path, 3)
    path.write_bytes(path.read_bytes().replace(b'"round":2', b'"round":9'))
    with pytest.raises(InputError, match=r"after entry 2 a line that was changed.*flanders audit verify"):
        AuditTrail(path).open(ABOUT)


def test_a_trail_that_vanished_is_begun_anew_and_says_so(path):
    head = written(path, 3).head
    path.unlink()
    again = AuditTrail(path)
    again.open({**ABOUT, "after_round": 3}, head)
    again.close()
    check = verify_trail(path)
    assert "found no trail when it started, although 4 entries had been written" in str(check.breaches[0])
    assert "entries 1 to 4 are missing" in str(check.breaches[1])


def test_rotation_bounds_the_files_and_the_trail_says_what_was_removed(path):
    trail = written(path, 200, max_bytes=2000, max_files=3)
    files = sorted(path.parent.iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) < 3 * (2000 + 500)
    check = verify_trail(path, [trail.head])
    assert check.intact
    assert check.notes == [f"entries 1 to {check.first - 1} were removed, since the trail had too many files"]
    assert check.head == trail.head


def test_a_trail_goes_on_after_a_kill_in_the_middle_of_a_rotation(path):
    head = written(path, 5).head
    path.rename(path.with_name("audit.jsonl.1"))  # the new file was not made yet
    again = AuditTrail(path)
    again.open({**ABOUT, "after_round": 5}, head)
    again.close()
    assert verify_trail(path, [head, again.head]).intact


def test_files_of_other_names_are_not_taken_for_parts_of_the_trail(path):
    written(path, 2)
    for name in ("audit.jsonl.0", "audit.jsonl.old", "audit.jsonl.1.gz", "audit.jsonl.-1"):
        path.with_name(name).write_bytes(b"something else")
    assert verify_trail(path).intact


def test_two_writers_cannot_share_a_trail(path):
    first = AuditTrail(path)
    first.open(ABOUT)
    with pytest.raises(InputError, match="Another process writes to the audit trail"):
        AuditTrail(path).open(ABOUT)
    first.close()
    AuditTrail(path).open(ABOUT)


def test_a_full_disk_leaves_the_trail_as_it_was(path, monkeypatch):
    trail = AuditTrail(path)
    trail.open(ABOUT)
    write = os.write

    def half(handle, data):
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[:40])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        trail.add("round", round_(1))
    monkeypatch.undo()
    trail.add("round", round_(2, unwritten=[1]))
    trail.close()
    check = verify_trail(path, [trail.head])
    assert check.intact
    assert check.notes == ["rounds without an entry, since the entry could not be written: 1"]


def test_a_trail_where_nothing_can_be_written_is_an_error_with_a_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        AuditTrail(tmp_path / "file" / "audit.jsonl").open(ABOUT)
    with pytest.raises(InputError, match="`max_files` parameter of AuditTrail"):
        AuditTrail(tmp_path / "audit.jsonl", max_files=1)


@pytest.mark.parametrize("text", ["", "12", "12:xyz", "-1:" + 64 * "a", "1:" + 63 * "a", "1" * 20 + ":" + 64 * "a"])
def test_a_text_that_is_no_head_is_refused_with_an_explanation(text):
    with pytest.raises(InputError, match="The server logs the head after each round"):
        Head.parse(text)


@pytest.mark.parametrize(
    "content",
    [b"SQLite format 3\x00 and more", b"one line\nhalf of another", b"\x93NUMPY\n\x00\x01", b"{}", b'{"entries":1'],
)
def test_a_file_that_is_no_trail_is_refused_and_not_changed(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        AuditTrail(path).open({"run": "a", "after_round": 0})
    assert path.read_bytes() == content


def test_a_kill_in_the_very_first_line_is_no_damage(path):
    for half in (b"{", b'{"entry":1,"prev'):
        path.write_bytes(half)
        trail = AuditTrail(path)
        trail.open({"run": "a", "after_round": 0})
        trail.close()
        assert verify_trail(path).intact
