"""The log in a terminal: what it says, and that nobody can write to the terminal through it."""

from __future__ import annotations

import math

import pytest

import flanders.watch.log
from flanders.watch.log import Log, watch_log
from round_records import round_record


@pytest.fixture(autouse=True)
def eighty(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_each_round_is_one_line_with_reasons_and_alarms(results, writer):
    one, log = writer(), Log(results)
    one.write(2)
    first = log.news()
    assert any("guard + fedavg" in line and "running" in line for line in first)
    assert "    2    0.5200       3        1        0       0       0" in first
    assert any("dropped eve: a copy of another client's update" in line for line in first)
    assert not any("ALARM" in line for line in first)
    assert log.news() == []
    one.write()
    assert any(line.startswith("  !!   ALARM: client eve was dropped or refused 3 times") for line in log.news())
    one.write(last=True)
    assert any("done" in line for line in log.news())
    assert log.news() == []


def test_only_the_last_rounds_of_what_was_before_are_shown(results, writer):
    one = writer()
    one.write(8)
    lines = Log(results).news()
    assert "  ... 3 earlier rounds" in lines
    assert sum(line.strip()[:1].isdigit() for line in lines) == 5


def test_the_last_round_waits_a_little_for_its_accuracy(results, writer, monkeypatch):
    one, log = writer(), Log(results)
    monkeypatch.setattr(flanders.watch.log, "PATIENCE", math.inf)  # however long this test takes
    one.write(accuracy=float("nan"))
    assert not any(line.startswith("    1") for line in log.news())
    one.rewrite(1, accuracy=0.75)
    assert any("0.7500" in line for line in log.news())
    one.write(accuracy=float("nan"))
    log.news()
    monkeypatch.setattr(flanders.watch.log, "PATIENCE", 0.0)
    assert any(line.startswith("    2         -") for line in log.news())


def test_everything_fits_into_eighty_columns_and_holds_no_control_characters(results, writer, capsys):
    one = writer()
    names = ["ann", "\x1b[2J\x1b]0;pwned\x07" + "x" * 300, "line\nbreak\r", "\u202eevil"]
    for number in (1, 2, 3):
        record = round_record(
            number, names, kept=[True, False, False, False], reason=names, note="note\x1b[31m " * 30
        )
        one.store.write_round(one.id, record)
    watch_log(results, once=True)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert all(line.isprintable() for line in out.split("\n"))
    assert "ALARM" in out


def test_a_file_that_is_not_there_is_waited_for_and_mentioned_once(results, writer):
    log = Log(results)
    assert "Waiting." in " ".join(log.news())
    assert log.news() == []
    writer().write()
    assert log.news(hold=False)
