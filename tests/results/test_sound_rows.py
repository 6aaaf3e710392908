"""A results file of somebody else: odd rows are left out, and nothing in it reaches the terminal."""

from __future__ import annotations

import sqlite3

import pytest

from flanders.cli import main
from flanders.results.schema import ResultsError, reading
from flanders.results.sound_rows import is_sound, readable_text
from flanders.results.store import Store
from results.test_store import spec
from round_records import round_record


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        for seed in (0, 1):
            (id_,) = store.add([spec(seed)], {"flanders": "0"})
            store.claim([id_])
            store.write_round(id_, round_record(1, ["a", "b"], kept=[True, False], accuracy=0.5), last=True)
    return path


def change(path, *statements):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA ignore_check_constraints=1")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def counts(path):
    with reading(path) as connection:
        return [
            connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("run", "round", "client")
        ]


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("UPDATE run SET spec = '[[1]]' WHERE position = 1", [1, 2, 4]),
        ("UPDATE run SET spec = '{}' WHERE position = 1", [1, 2, 4]),
        ("UPDATE run SET spec = 7 WHERE position = 1", [1, 2, 4]),
        ("UPDATE run SET status = 'odd' WHERE position = 1", [1, 2, 4]),
        ("UPDATE run SET error = x'ff' WHERE position = 1", [1, 2, 4]),
        ("UPDATE round SET accuracy = 'high' WHERE run = (SELECT min(id) FROM run)", [2, 1, 2]),
        ("UPDATE round SET number = 'one' WHERE run = (SELECT min(id) FROM run)", [2, 1, 2]),
        ("UPDATE client SET fate = 'lost' WHERE client = 'a'", [2, 2, 2]),
        ("UPDATE client SET fate = x'00' WHERE client = 'a'", [2, 2, 2]),
        ("UPDATE client SET score = 'x' WHERE client = 'a'", [2, 2, 2]),
        ("UPDATE client SET reason = 3.5 WHERE client = 'a'", [2, 2, 4]),  # SQLite makes a text of it
    ],
)
def test_one_odd_row_is_left_out_and_all_others_are_read(results, statement, left, tmp_path, capsys):
    change(results, statement)
    assert counts(results) == left
    for command in (["show"], ["table"], ["export", "--csv", str(tmp_path / "csv")], ["report"]):
        assert main([command[0], str(results), *command[1:]]) == 0, capsys.readouterr().err


def test_views_and_triggers_are_refused(results):
    change(results, "DROP TABLE round", "CREATE VIEW round AS SELECT * FROM run")
    with pytest.raises(ResultsError, match=r"the tables \['round'\] are missing"):
        counts(results)


def test_a_trigger_is_refused(results):
    change(results, "CREATE TRIGGER t AFTER DELETE ON run BEGIN SELECT 1; END")
    with pytest.raises(ResultsError, match="1 views or triggers"):
        counts(results)


def test_no_text_of_the_file_controls_the_terminal(results, capsys):
    change(
        results, "UPDATE client SET reason = char(27) || ']0;title' || char(7)", "UPDATE run SET error = char(27)"
    )
    with reading(results) as connection:
        (id_,) = connection.execute("SELECT min(id) FROM run").fetchone()
    for arguments in (["show", str(results)], ["show", str(results), id_], ["table", str(results)]):
        assert main(arguments) == 0
        out, _ = capsys.readouterr()
        assert "\x1b" not in out
        assert "\x07" not in out


def test_texts_keep_their_lines_and_letters():
    assert readable_text("Zürich\n\tλ".encode()) == "Zürich\n\tλ"
    assert readable_text(b"\xff\x00") == "\ufffd?"


@pytest.mark.parametrize(
    "text", ["[" * 50_000 + "]" * 50_000, '{"a": "' + "x" * 2**21 + '"}', "null", "no json", None]
)
def test_specs_that_nobody_can_use_are_not_sound(text):
    assert not is_sound(text)


def test_a_spec_with_control_characters_is_not_sound():
    text = spec().text
    assert is_sound(text)
    assert not is_sound(text.replace("digits", "\\u001b[2J"))
