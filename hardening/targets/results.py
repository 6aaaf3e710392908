"""The target `results`: results files that were changed after they were written."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

from flanders.experiments.spec import parse_spec
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.results.run import RunSpec
from flanders.results.store import Store
from hardening.choices import Choices, damaged
from hardening.targets.commands import run_command
from hardening.targets.target import Target

SPEC = {
    "data": {"dataset": "synthetic"},
    "federation": {"num_clients": 6, "rounds": 3, "seed": [0, 1]},
    "threat": {"attack": ["gauss", "lie"], "fraction": 0.34},
    "filter": {"name": [{"name": "flanders", "keep": "m-b"}, "keep-all"]},
}
TABLES = ("run", "round", "client", "checkpoint", "sqlite_master")
FATES = tuple(Fate)


class Results(Target):
    """Commands that read a damaged results file."""

    name = "results"

    def prepare(self, folder: Path) -> None:
        """Write a results file with eight runs."""
        super().prepare(folder)
        self.made = folder / "made.sqlite"
        with Store(self.made) as store:
            for experiment in parse_spec(SPEC):
                (id_,) = store.add([RunSpec(experiment.canonical)], {"flanders-fl": "0"})
                store.claim([id_])
                for number in range(1, 4):
                    store.write_round(id_, example_round(number), last=number == 3)
        self.id = id_

    def attack(self, choices: Choices, replay: bytes | None) -> int:
        """Run one command on a damaged file."""
        path = self.folder / "hostile.sqlite"
        for old in self.folder.glob("hostile*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        if replay is not None:
            path.write_bytes(replay)
        else:
            damage(choices, self.made, path)
        command = choices.pick(
            (
                ["show", str(path)],
                ["show", str(path), self.id[:6]],
                ["show", str(path), "--json"],
                ["table", str(path)],
                ["table", str(path), "--format", "latex"],
                ["export", str(path), "--csv", str(self.folder / "hostile-csv")],
                ["report", str(path), "--html", str(self.folder / "hostile.html")],
            )
        )
        run_command(command)
        return 1


def example_round(number: int) -> RoundRecord:
    """Return a round in which every fate occurs."""
    clients = tuple(
        ClientRecord(client, FATES[client % len(FATES)], 1.0 + client, 0.5, f"reason {client}", client < 2)
        for client in range(6)
    )
    return RoundRecord(
        number, clients, "a note", 0.5 + 0.1 * number, 1.0 / number, seconds={"train": 1.0, "filter": 0.1}
    )


def damage(choices: Choices, made: Path, path: Path) -> None:
    """Write a damaged copy of a results file."""
    if choices.chance(25):
        path.write_bytes(damaged(made.read_bytes(), choices))
        return
    shutil.copy(made, path)
    with contextlib.closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error):
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA ignore_check_constraints=1")
        connection.execute("PRAGMA writable_schema=1")
        for _ in range(1 + choices.below(3)):
            with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                tamper(choices, connection)
            if connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'view'").fetchone()[0]:
                break  # a view may be endless, and the next change could read it
        connection.commit()


def tamper(choices: Choices, connection: sqlite3.Connection) -> None:
    """Make one hostile change in a database."""
    kind = choices.below(8)
    table = choices.pick(TABLES)
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if kind <= 3 and columns:
        column = choices.pick(columns)
        everywhere = "" if choices.chance(30) else f" WHERE rowid IN (SELECT rowid FROM {table} LIMIT 1)"
        if table in ("round", "client"):
            everywhere = "" if choices.chance(30) else " WHERE run = (SELECT min(id) FROM run)"
        connection.execute(f"UPDATE {table} SET {column} = ?{everywhere}", (cell(choices, column),))
    elif kind == 4:
        connection.execute("UPDATE run SET spec = ? WHERE position = 1", (spoilt_json(choices, connection),))
    elif kind == 5:
        connection.execute(f"DROP TABLE {table}")
        if choices.chance(50):
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM {table}")
        elif choices.chance(50):
            endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
            connection.execute(
                f"CREATE VIEW {table} AS {endless} SELECT {', '.join(f'x AS {c}' for c in columns)} FROM c"
            )
    elif kind == 6:
        connection.execute(f"PRAGMA user_version={choices.pick((0, 1, 3, 4, 2**31 - 1))}")
    else:
        connection.execute(f"DELETE FROM {table}")


def cell(choices: Choices, column: str) -> object:
    """Return a hostile value for a cell of this column."""
    if column in ("spec", "options", "versions") and choices.chance(60):
        return json.dumps(choices.value())
    value = choices.value(0)
    if isinstance(value, list):
        return json.dumps(value) if choices.chance(50) else b"\xff\xfe\0"
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return value


def spoilt_json(choices: Choices, connection: sqlite3.Connection) -> str:
    """Return the spec of the first run with one hostile value in it."""
    (text,) = connection.execute("SELECT spec FROM run WHERE position = 1").fetchone() or ("",)
    try:
        tree = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        tree = None
    if not isinstance(tree, dict) or not tree or choices.chance(5):
        return "[" * 50_000 + "]" * 50_000
    table = tree[choices.pick(list(tree))]
    if isinstance(table, dict) and table:
        table[choices.pick(list(table))] = choices.value()
    else:
        tree[choices.pick(list(tree))] = choices.value()
    return json.dumps(tree)
