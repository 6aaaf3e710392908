"""Whatever is done to a trail afterwards is found: every byte, every line, every shorter trail."""

from __future__ import annotations

import hashlib
import json
import time

import numpy as np
import pytest

from audit.test_trail import ABOUT, round_, written
from flanders.audit import AuditTrail, Head, verify_trail
from flanders.audit.entries import seal
from flanders.checks import InputError
from flanders.cli import main


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


@pytest.fixture
def trail(path):
    return written(path, 6)


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def test_every_change_of_one_byte_is_found(path):
    trail = written(path, 2)
    original = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(original)):
        changed = bytearray(original)
        changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        assert not verify_trail(path, [trail.head]).intact, (place, bytes(changed[place : place + 1]))


def test_every_deletion_of_lines_is_found(path, trail):
    original = lines_of(path)
    for start in range(len(original)):
        for stop in range(start + 1, len(original) + 1):
            path.write_bytes(b"".join(original[:start] + original[stop:]))
            assert not verify_trail(path, [trail.head]).intact, (start, stop)


def test_every_exchange_and_every_repetition_of_lines_is_found(path, trail):
    original = lines_of(path)
    for one in range(len(original)):
        for other in range(one + 1, len(original)):
            swapped = list(original)
            swapped[one], swapped[other] = swapped[other], swapped[one]
            path.write_bytes(b"".join(swapped))
            assert not verify_trail(path).intact
        path.write_bytes(b"".join([*original[: one + 1], *original[one:]]))
        assert not verify_trail(path).intact


def test_a_changed_entry_is_named_by_file_and_line(path, trail):
    path.write_bytes(path.read_bytes().replace(b'"round":3', b'"round":4'))
    (breach,) = [each for each in verify_trail(path).breaches if each.line == 4]
    assert str(breach) == f"{path}, line 4: the line was changed: its hash does not fit its content"


def rewritten(path, change):
    """Write a trail anew after a change to its entries, with hashes that are right."""
    head, lines = Head(), []
    for line in lines_of(path):
        fields = {k: v for k, v in json.loads(line).items() if k not in ("entry", "previous", "hash", "kind")}
        new, head = seal(head, json.loads(line)["kind"], change(fields))
        lines.append(new)
    path.write_bytes(b"".join(lines))


def test_a_trail_that_was_rewritten_to_its_end_is_found_by_a_head_from_elsewhere_and_only_by_it(path, trail):
    rewritten(path, lambda fields: {**fields, "note": "all is well"})
    assert verify_trail(path).intact
    (breach,) = verify_trail(path, [trail.head]).breaches
    assert breach.words.startswith("rewritten: entry 7 is not the one")


def test_a_trail_that_was_cut_is_found_by_a_head_from_elsewhere_and_only_by_it(path, trail):
    path.write_bytes(b"".join(lines_of(path)[:4]))
    assert verify_trail(path).intact
    (breach,) = verify_trail(path, [trail.head]).breaches
    assert breach.words == "rolled back: entry 7 was written, but the trail ends at 4"


def test_an_old_memory_that_was_put_back_is_found(path):
    trail = written(path, 6)
    again = AuditTrail(path)
    again.open({**ABOUT, "after_round": 3}, trail.head)
    again.add("round", round_(4))
    again.close()
    (breach,) = verify_trail(path).breaches
    assert "went back from round 6 to round 3" in breach.words


def test_one_round_that_is_there_twice_after_a_kill_is_no_breach(path):
    trail = written(path, 6)
    again = AuditTrail(path)
    again.open({**ABOUT, "after_round": 5}, trail.head)
    again.add("round", round_(6))
    again.add("round", round_(7))
    again.close()
    check = verify_trail(path)
    assert check.intact
    assert check.notes == ["round 6 of run a is there twice: the server was stopped before it had saved the round"]


def test_a_model_that_was_exchanged_between_two_rounds_is_found(path):
    trail = AuditTrail(path)
    trail.open(ABOUT)
    trail.add("round", round_(1))
    trail.add("round", round_(2, model_before="another"))
    trail.close()
    (breach,) = verify_trail(path).breaches
    assert breach.words == "round 2 did not start from the global model that round 1 ended with"


def test_a_round_without_an_entry_is_found(path):
    trail = AuditTrail(path)
    trail.open(ABOUT)
    trail.add("round", round_(1))
    trail.add("round", round_(4))
    trail.close()
    assert "round 2 has no entry" in [breach.words for breach in verify_trail(path).breaches]


def test_the_removal_of_an_old_file_is_told_from_rotation(path):
    trail = written(path, 200, max_bytes=2000, max_files=5)
    oldest = min(path.parent.glob("audit.jsonl.*"), key=lambda file: int(file.suffix[1:]))
    oldest.unlink()
    breaches = verify_trail(path, [trail.head]).breaches
    assert any("are missing at the start" in breach.words for breach in breaches)


@pytest.mark.parametrize(
    "fields",
    [
        {"round": 1},
        {"run": "a", "round": "x", "model_before": "", "model_after": ""},
        {"run": "a", "round": 1, "unwritten": 5, "model_before": "", "model_after": ""},
        {"run": "a", "round": 2**200, "model_before": "", "model_after": ""},
    ],
    ids=str,
)
def test_entries_that_no_server_writes_are_breaches_and_no_errors(path, fields):
    line, head = seal(Head(), "start", ABOUT)
    path.write_bytes(line + seal(head, "round", fields)[0])
    assert not verify_trail(path).intact


@pytest.mark.parametrize(
    "number", [b"1e999", b"[1]", b"9" * 5000, b"[" * 5000], ids=["inf", "list", "huge", "deep"]
)
def test_a_line_with_a_right_hash_and_a_wrong_number_is_a_breach_and_no_error(path, number):
    body = b'{"entry":%s,"previous":"","kind":"round"' % number
    path.write_bytes(b'%s,"hash":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode()))
    (breach,) = verify_trail(path).breaches
    assert "the line cannot be read" in breach.words


def test_a_file_that_is_no_trail_has_breaches_up_to_a_bound(path):
    path.write_bytes(b"\n" * 5000)
    check = verify_trail(path)
    assert len(check.breaches) + check.more_breaches == 5000
    assert len(check.breaches) == 1000


def test_a_missing_trail_is_an_error(tmp_path):
    with pytest.raises(InputError, match="There is no audit trail"):
        verify_trail(tmp_path / "none.jsonl")


class TestCommand:
    def test_an_intact_trail_ends_with_zero_and_its_head(self, path, trail, capsys):
        assert main(["audit", "verify", str(path)]) == 0
        out = capsys.readouterr().out
        assert f"{path}: 7 entries, 6 rounds, intact. Head: {trail.head}\n" in out
        assert "The file alone does not show" in out

    def test_a_changed_trail_ends_with_one_and_says_where(self, path, trail, capsys):
        path.write_bytes(path.read_bytes().replace(b'"round":3', b'"round":4'))
        assert main(["audit", "verify", str(path)]) == 1
        out = capsys.readouterr().out
        assert "line 4: the line was changed" in out
        assert "NOT INTACT" in out

    def test_heads_are_taken_from_the_command_line_and_from_logs(self, path, trail, tmp_path, capsys):
        log = tmp_path / "server.log"
        log.write_text(f"INFO : flanders: audit head {trail.head}\nINFO : something else\n")
        options = ["--log", str(log), "--head", str(trail.head)]
        assert main(["audit", "verify", str(path), *options]) == 0
        assert "The file alone" not in capsys.readouterr().out
        path.write_bytes(b"".join(lines_of(path)[:4]))
        for option in (options[:2], options[2:]):
            assert main(["audit", "verify", str(path), *option]) == 1
            assert "rolled back" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--head", "7"], "64 hexadecimal digits"),
            (["--log", "none.log"], "The log none.log cannot be read"),
            (["--log", __file__], "names no `audit head`"),
            (["--state", "nowhere"], "There is no state file"),
        ],
    )
    def test_wrong_options_are_one_line(self, path, trail, capsys, options, words):
        assert main(["audit", "verify", str(path), *options]) == 2
        assert words in capsys.readouterr().err

    def test_a_missing_file_is_one_line(self, tmp_path, capsys):
        assert main(["audit", "verify", str(tmp_path / "none")]) == 2
        assert "There is no audit trail" in capsys.readouterr().err


def test_names_in_a_trail_do_not_control_the_terminal(path, capsys):
    nasty = "\x1b[2J\x07" + "x" * 10_000
    trail = AuditTrail(path)
    trail.open({"run": nasty, "after_round": 0})
    for number in (1, 2):
        trail.add("round", {"run": nasty, "round": number, "model_before": "", "model_after": ""})
    trail.add("start", {"run": nasty, "after_round": 1})
    trail.add(nasty, {})
    trail.add("round", {"run": nasty, "round": "x" + nasty, "model_before": "", "model_after": ""})
    trail.close()
    main(["audit", "verify", str(path)])
    out = capsys.readouterr().out
    assert "is there twice" in out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out) < 3000


@pytest.fixture
def gap(path):
    """A trail that names very many rounds as unwritten."""
    trail = AuditTrail(path)
    trail.open({"run": "a", "after_round": 0})
    many = list(range(1, 200_001))
    trail.add("round", {"run": "a", "round": 1, "model_before": "", "model_after": ""})
    fields = {"run": "a", "round": 200_001, "unwritten": many, "model_before": "", "model_after": ""}
    trail.add("round", fields)
    trail.close()
    return path


def test_of_many_unwritten_rounds_few_are_named(gap):
    (note,) = verify_trail(gap).notes
    assert note.endswith("20 and 199980 more")


@pytest.mark.slow
def test_a_trail_that_names_many_rounds_as_unwritten_is_checked_in_no_time(gap):
    start = time.process_time()
    verify_trail(gap)
    assert time.process_time() - start < 5  # it took minutes
