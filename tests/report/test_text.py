"""What `flanders show` prints of a run."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest

from flanders.record import Fate
from flanders.report.run_details import read_run_details
from flanders.report.text import CLIENTS_SHOWN, print_results, print_run, print_table
from flanders.results.summary import read_summaries
from round_records import round_record

WHY = "moved 3.1 times its usual length"
FATES = [
    ["dropped", "kept", "kept"],
    ["dropped", "refused", "kept", "silent"],
    ["dropped", "kept", "kept", "banned"],
]
REASONS = [
    ["moved 2.8 times its usual length", "", ""],
    [WHY, "holds NaN", "", "no reply"],
    ["score 3", "", "", "dropped too often"],
]


@pytest.fixture
def path(write, make_spec, tmp_path):
    """Three rounds: client 0 is dropped, client 1 refused once, client 2 kept, 3 silent and then banned."""
    rounds = [
        round_record(number, range(len(fates)), fates=fates, reason=reasons)
        for number, (fates, reasons) in enumerate(zip(FATES, REASONS, strict=True), start=1)
    ]
    return write(tmp_path / "fates.sqlite", [(make_spec(clients=4, rounds=3), rounds, "done")])


def table_after(out, beginning):
    """The cells of the table whose header begins so."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(beginning))
    end = next((i for i in range(start, len(lines)) if not lines[i]), len(lines))
    return [line.split("  ") for line in lines[start:end]]


def words(row):
    return [cell.strip() for cell in row if cell.strip()]


def test_the_source_accuracy_is_a_column_where_the_attack_has_a_target(write, make_spec, tmp_path, capsys):
    plain = round_record(1, range(3), attack_success=0.5)
    for name, record in (("plain", plain), ("aimed", dataclasses.replace(plain, source_accuracy=0.25))):
        path = write(tmp_path / f"{name}.sqlite", [(make_spec(clients=3, rounds=1), [record], "done")])
        print_run(path, "")
        header, row = (words(row) for row in table_after(capsys.readouterr().out, "round  accuracy"))
        found = dict(zip(header, row, strict=False))
        assert found["attack_success"] == "0.500"
        assert found.get("source_accuracy") == ("0.250" if name == "aimed" else None)


def test_the_rounds_have_counts_of_the_fates_that_occur(path, capsys):
    print_run(path, "")
    header, *rows = (words(row) for row in table_after(capsys.readouterr().out, "round  accuracy"))
    fates = slice(4, 9)
    assert header[fates] == ["kept", "dropped", "refused", "banned", "silent"]
    assert [row[fates] for row in rows] == [
        ["2", "1", "0", "0", "0"],
        ["1", "1", "1", "0", "1"],
        ["2", "1", "0", "1", "0"],
    ]


def test_a_fate_that_does_not_occur_has_no_column(results, capsys):
    run = json.loads(_printed(print_results, results, as_json=True, capsys=capsys))[2]
    print_run(results, run["id"])
    (header, *_) = table_after(capsys.readouterr().out, "round  accuracy")
    assert words(header)[4:8] == ["kept", "dropped", "caught", "missed"]


def test_clients_that_were_not_kept_are_listed_with_fates_and_the_most_frequent_reason(path, capsys):
    print_run(path, "")
    out = capsys.readouterr().out
    assert "\nClients that were not kept\n" in out
    header, *rows = (words(row) for row in table_after(out, "client  not kept"))
    assert header == ["client", "not kept", "fates", "most frequent reason"]
    assert rows == [
        ["0", "3 of 3 rounds", "dropped 3", WHY],
        ["3", "2 of 2 rounds", "silent 1, banned 1", "dropped too often"],
        ["1", "1 of 3 rounds", "refused 1", "holds NaN"],
    ]


def test_a_long_list_of_clients_says_how_many_more_there_are(write, make_spec, tmp_path, capsys):
    many = CLIENTS_SHOWN + 5
    rounds = [round_record(1, range(many), fates=["dropped"] * many)]
    print_run(write(tmp_path / "many.sqlite", [(make_spec(), rounds, "done")]), "")
    out = capsys.readouterr().out
    assert "and 5 more. `flanders export" in out


def test_as_json_a_run_has_every_fate_and_every_client_that_was_not_kept(path, capsys):
    found = json.loads(_printed(print_run, path, "", as_json=True, capsys=capsys))
    assert [{fate: row[fate] for fate in Fate} for row in found["rounds"]][1] == {
        "kept": 1, "dropped": 1, "refused": 1, "banned": 0, "silent": 1,
    }  # fmt: skip
    assert [row["client"] for row in found["not_kept"]] == [0, 3, 1]
    assert found["unusable"] == 2


def test_a_run_whose_clients_were_all_kept_has_no_second_table(write, make_spec, tmp_path, capsys):
    print_run(write(tmp_path / "kept.sqlite", [(make_spec(), [round_record(1, range(3))], "done")]), "")
    assert "not kept" not in capsys.readouterr().out


def test_caught_and_missed_are_not_known_in_a_live_federation(path):
    run = read_run_details(path, read_summaries(path)[0].id)
    assert {(row.caught, row.missed) for row in run.rounds} == {(None, None)}


@pytest.mark.parametrize("installed", [True, False])
def test_a_terminal_shows_a_table_with_and_without_rich(monkeypatch, capsys, installed):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    if not installed:
        monkeypatch.setitem(sys.modules, "rich", None)
    print_table([["[0, 1]", "2"]], ["seeds", "runs"])
    out = capsys.readouterr().out
    assert "seeds" in out
    assert "[0, 1]" in out


def _printed(print_, *arguments, capsys, **options):
    print_(*arguments, **options)
    return capsys.readouterr().out
