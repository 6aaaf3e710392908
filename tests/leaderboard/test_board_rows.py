from __future__ import annotations

import re

import pytest

from flanders.checks import InputError
from flanders.cli import main
from flanders.leaderboard.board_rows import COLUMNS, MeasuredRun, measured_runs, read_rows, write_rows
from flanders.leaderboard.cells import BoardCell
from flanders.leaderboard.entrants import own_entrants
from flanders.leaderboard.protocol import Case
from flanders.leaderboard.submission import packages_of

CELL = BoardCell("digits", "krum", True, Case("backdoor", 0.2, 3, rotating=True), 41)
ROW = MeasuredRun(CELL, 0.9123, 0.25, 0.5, 0.125, 1.5, "0123456789abcdef", "flanders-fl 0.1.0", "1")


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    write_rows(path, [ROW])
    return path


def test_rows_can_be_read_again(rows):
    assert read_rows(rows) == [ROW]


def test_a_row_has_the_command_that_made_it_and_the_command_makes_that_run_alone(rows, capsys):
    (command,) = [line.rpartition(",")[2] for line in rows.read_text().splitlines()[1:]]
    assert command.startswith("flanders leaderboard run digits ")
    assert main([*command.split()[1:], "--dry-run"]) == 0
    assert capsys.readouterr().out == f"{command}\n1 runs.\n"


def test_the_command_of_another_packages_defence_names_its_file(tmp_path):
    row = MeasuredRun(CELL, 0.9, None, None, None, 1.5, "0" * 16, "other 1.0", "1")
    write_rows(tmp_path / "rows.csv", [row])
    assert read_rows(tmp_path / "rows.csv") == [row]
    assert row.command.endswith(" --defences other.toml")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (r"\n1,", "\n2,", "the row is of protocol '2', but this version of flanders has protocol '1'"),
        ("digits,krum", "digit,krum", "no dataset 'digit'"),
        ("digits,krum", "digits,=krum", "cannot be the name of a defence"),
        ("digits,krum", "digits,<b>", "cannot be the name of a defence"),
        ("backdoor,0.2", "backdoor,0.3", "no case 'backdoor' with this fraction, start and rotating"),
        (",yes,41", ",perhaps,41", "'perhaps' is neither yes nor no"),
        (",41,", ",7,", "no seed 7"),
        ("0.9123", "1.9123", "'1.9123' is not a share from 0 to 1"),
        ("0.9123", "nan", "'nan' is not a share"),
        ("0.9123", "", "`accuracy` is missing"),
        ("0.9123", "much", "could not convert"),
        ("1.500", "inf", "`milliseconds` must be a number"),
        ("0123456789abcdef", "../x", "`run` must be the id of a run"),
        ("flanders-fl 0.1.0", "=1+1", "`package` the name and the version of a package"),
        ("seed=41", "seed=41; rm -rf x", "the command does not belong to this run"),
        (r",flanders leaderboard.*", "", "16 values instead of 17"),
        (r"\n(1,.*)", r"\n\1\n\1", "twice"),
        ("protocol,dataset", "protocol,data", "must begin with the columns protocol, dataset"),
    ],
)
def test_what_is_wrong_with_a_file_of_rows_is_told(rows, old, new, problem):
    text = rows.read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    rows.write_text(changed)
    with pytest.raises(InputError, match=problem):
        read_rows(rows)


def test_files_that_are_no_rows_are_refused(tmp_path):
    with pytest.raises(InputError, match="There is no file"):
        read_rows(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as a text file"):
        read_rows(tmp_path / "bytes.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match=f"must begin with the columns {COLUMNS[0]}"):
        read_rows(tmp_path / "empty.csv")


def test_finished_runs_become_rows_of_the_defences_that_ran_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = "lie/0.2/1/fixed"
    where = ["--where", f"case=none,{case}", "--where", "defence=median,krum", "--where", "seed=40"]
    assert main(["leaderboard", "run", *where]) == 0
    ours = own_entrants()
    found = {
        (r.cell.defence, r.cell.told, r.cell.case.name): r
        for r in measured_runs(tmp_path / "leaderboard.sqlite", ours, packages_of(ours))
    }
    assert set(found) == {
        (name, told, each)
        for name, told in (("median", False), ("krum", False), ("krum", True))
        for each in ("none", case)
    }
    attacked = found["median", False, case]
    assert attacked.accuracy != found["median", False, "none"].accuracy
    assert attacked.milliseconds > 0
    assert attacked.package.startswith("flanders-fl ")
