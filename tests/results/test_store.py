from __future__ import annotations

import dataclasses
import json
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

from flanders import InputError
from flanders.record import PHASES, ClientRecord, RoundRecord
from flanders.results import claims, export, record_columns, schema, store
from flanders.results.export import export_csv, export_parquet
from flanders.results.run import Options, RunSpec
from flanders.results.schema import ResultsError, reading
from flanders.results.store import ClaimLost, Store
from flanders.results.summary import read_summaries
from round_records import round_record


def spec(seed=0):
    return RunSpec(
        {
            "data": {"dataset": {"name": "digits"}},
            "federation": {"num_clients": 4, "rounds": 3, "seed": seed},
            "threat": {"attack": None, "data_poison": None, "fraction": 0.0},
            "filter": {"name": "keep-all"},
            "aggregator": {"name": "fedavg", "preaggregators": []},
        }
    )


def record(number=1, **changes):
    values = {
        "accuracy": np.float32(0.1) * number,
        "loss": 1 / 3,
        "seconds": {"train": 0.5},
        "clients": (3, 4, 7),
        "malicious": [True, True, False],
        "fates": ["dropped", "refused", "kept"],
        "score": [0.1 + 0.2, None, float("inf")],
        "reason": ["twice its usual length", "not finite", ""],
    }
    return round_record(number, **{**values, **changes})


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def opened(results):
    with Store(results) as found:
        found.add([spec(0), spec(1)], {"flanders": "test"})
        yield found


@pytest.fixture
def ids():
    return [spec(0).id, spec(1).id]


def rows(path, query):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_a_round_is_read_back_to_the_last_bit(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record())
    assert rows(results, "SELECT accuracy, loss, attack_success, train, attack FROM round") == [
        (float(np.float32(0.1)), 1 / 3, None, 0.5, None)
    ]
    assert rows(results, "SELECT client, fate, score, probability, reason, malicious FROM client") == [
        (3, "dropped", 0.1 + 0.2, None, "twice its usual length", 1),
        (4, "refused", None, None, "not finite", 1),
        (7, "kept", float("inf"), None, "", 0),
    ]


@pytest.mark.parametrize(("table", "kind"), [("round", RoundRecord), ("client", ClientRecord)])
def test_every_field_of_a_record_is_a_column_of_the_file_and_of_the_export(opened, results, table, kind):
    names = {field.name for field in dataclasses.fields(kind)}
    if kind is RoundRecord:  # clients have a table of their own, seconds a column for each phase
        names = names - {"clients", "seconds"} | {"threshold", *PHASES}
    columns = {row[1] for row in rows(results, f"PRAGMA table_info({table})")}
    assert columns == names | {"run"} | ({"round"} if kind is ClientRecord else set())
    assert columns == set({"round": export.ROUND, "client": export.CLIENT}[table])


def test_a_field_of_a_type_without_a_column_is_named():
    with pytest.raises(TypeError, match=r"The field .route. has the type .*COLUMN_TYPES"):
        record_columns._column("route", list)


def test_the_threshold_in_the_file_is_the_one_of_the_record(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(fates=["dropped", "kept", "kept"], score=[9.0, 1.0, 2.5]))
    assert rows(results, "SELECT threshold FROM round") == [(2.5,)]


def test_a_checkpoint_is_kept_in_pieces_and_only_the_last_one(opened, ids, results, monkeypatch):
    monkeypatch.setattr(store, "PIECE", 1000)
    opened.claim(ids)
    state = {"model": np.arange(700.0), "rng": np.random.default_rng(0).bit_generator.state}
    opened.write_round(ids[0], record(1), state={"model": np.zeros(5000)})
    opened.write_round(ids[0], record(2), state=state)
    assert rows(results, "SELECT count(*) > 5, min(round), max(round) FROM checkpoint") == [(1, 2, 2)]
    found = opened.read_checkpoint(ids[0])
    assert found["rng"] == state["rng"]
    np.testing.assert_array_equal(found["model"], state["model"])


def test_a_run_is_done_with_its_last_round_and_leaves_no_checkpoint(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1), state={"x": 1})
    opened.write_round(ids[0], record(2), last=True)
    assert rows(results, "SELECT status, owner FROM run ORDER BY position") == [("done", None), ("pending", None)]
    assert rows(results, "SELECT * FROM checkpoint") == []
    assert opened.claim(ids).spec.id == ids[1]
    assert opened.claim(ids) is None


def test_a_round_that_cannot_be_written_in_full_is_not_written_at_all(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1), state={"round": 1})
    with pytest.raises(ResultsError):
        opened.write_round(ids[0], record(2, clients=(3, 3, 7)), state={"round": 2})
    assert rows(results, "SELECT number FROM round") == [(1,)]
    assert opened.read_checkpoint(ids[0]) == {"round": 1}


def test_a_repeated_round_replaces_the_one_that_is_there(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    again = {"malicious": [True], "fates": ["kept"], "score": None, "reason": None}
    opened.write_round(ids[0], record(1, clients=(9,), loss=2.0, **again))
    assert rows(results, "SELECT loss FROM round") == [(2.0,)]
    assert rows(results, "SELECT client FROM client") == [(9,)]


def test_a_process_that_lost_its_claim_writes_nothing(opened, ids, results):
    opened.claim(ids)
    opened._connection.execute("UPDATE run SET owner = 'somebody else'")
    with pytest.raises(ClaimLost):
        opened.write_round(ids[0], record())
    assert rows(results, "SELECT * FROM round") == []


def test_readers_read_while_a_round_is_being_written(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    with schema.transaction(opened._connection):
        opened._write_rows(ids[0], record(2))
        assert read_summaries(results)[0].rounds == 1
    assert read_summaries(results)[0].rounds == 2


def test_precision_and_recall_count_clients_over_all_rounds(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1, fates=["dropped", "kept", "kept"]))  # one caught, one missed
    opened.write_round(ids[0], record(2, fates=["dropped"] * 3))  # two caught, one wronged
    found = read_summaries(results)[0]
    assert (found.precision, found.recall) == (3 / 4, 3 / 4)
    assert (found.best, found.final) == (float(np.float32(0.1) * 2),) * 2
    assert read_summaries(results)[1].best is None


def owner(**changes):
    return json.dumps({**json.loads(claims.this_process()), **changes})


def test_a_claim_lives_as_long_as_its_process_and_elsewhere_as_its_heartbeat(monkeypatch):
    assert claims.is_alive(claims.this_process(), 0)
    assert not claims.is_alive(None, None)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert not claims.is_alive(owner(pid=child.pid, started=None), now)
    assert not claims.is_alive(owner(started="1"), now)  # the number of the process was given out again
    assert claims.is_alive(owner(machine="far away"), now - claims.LEASE / 2)
    assert not claims.is_alive(owner(machine="far away"), now - 2 * claims.LEASE)
    assert claims.is_alive(owner(machine="far away"), now + claims.LEASE / 2)  # clocks differ
    assert not claims.is_alive(owner(machine="far away"), now + 2 * claims.LEASE)  # nobody reports from the future


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "7",
        "[" * 10**5,
        '{"machine": 1, "pid": 1}',
        owner(pid=10**30, started=None),
        owner(pid="../self", started=None),
        owner(pid=-1, started=None),
        owner(pid=True, started=None),
        owner(machine=[]),
    ],
    ids=range(10),  # the texts name this process, and each worker of the tests has another one
)
def test_a_claim_that_no_process_makes_is_nobodys(text):
    assert not claims.is_alive(text, None)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("name", ["run.csv", "round.csv", "client.csv"])
def test_an_export_does_not_write_through_a_planted_link(opened, ids, results, tmp_path, name):
    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "precious")
    export_csv(results, tmp_path / "out")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "out" / name).read_text().startswith(("id,", "run,"))


def test_the_claim_of_a_dead_process_is_taken_over_with_its_checkpoint(opened, ids):
    opened.claim(ids)
    opened.write_round(ids[0], record(1), state={"x": 1})
    opened._connection.execute("UPDATE run SET owner = ? WHERE owner IS NOT NULL", (owner(started="1"),))
    claimed = opened.claim(ids)
    assert (claimed.spec.id, claimed.checkpoint) == (ids[0], 1)


def test_a_failed_run_waits_until_it_is_tried_again(opened, ids):
    opened.claim(ids)
    opened.fail(ids[0], "ValueError: no", "Traceback")
    assert opened.claim(ids).spec.id == ids[1]
    assert opened.claim(ids) is None
    opened.retry(ids, {"device": "cuda"})
    claimed = opened.claim(ids)
    assert (claimed.spec.id, claimed.spec.options.device) == (ids[0], "cuda")


def test_a_run_keeps_the_threads_it_began_with_unless_told_otherwise(opened, ids):
    assert opened.claim(ids, threads=3).spec.options.threads == 3
    opened.release(ids[0])
    opened.add([spec(0)], {})
    assert opened.claim(ids, threads=8).spec.options.threads == 3
    opened.release(ids[0])
    opened.add([RunSpec(spec(0).canonical, Options(threads=5))], {})
    assert opened.claim(ids, threads=8).spec.options.threads == 5


def test_a_run_entered_twice_is_one_run_with_the_newest_options(opened, ids, results):
    opened.add([RunSpec(spec(0).canonical, Options(chunk=4))], {})
    assert rows(results, "SELECT id FROM run ORDER BY position") == [(i,) for i in ids]
    assert opened.claim(ids).spec.options.chunk == 4


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("database or disk is full", "The disk is full"),
        ("database is locked", "locked by another program"),
        ("attempt to write a readonly database", "cannot be opened for writing"),
        ("file is not a database", "not a readable results file"),
        ("disk I/O error", "could not be used: disk I/O error"),
    ],
)
def test_what_sqlite_complains_about_is_explained(results, message, meaning):
    with pytest.raises(ResultsError, match=meaning), schema.explained(results):
        raise sqlite3.OperationalError(message)


def test_a_database_that_is_full_ends_with_what_was_saved_before(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1), state={"x": np.zeros(10)})
    pages = opened._connection.execute("PRAGMA page_count").fetchone()[0]
    opened._connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(ResultsError, match="The disk is full"):
        opened.write_round(ids[0], record(2), state={"x": np.zeros(100_000)})
    assert rows(results, "SELECT number FROM round") == [(1,)]
    opened._connection.execute("PRAGMA max_page_count=1000000")
    opened.write_round(ids[0], record(2), state={"x": 2})
    assert opened.read_checkpoint(ids[0]) == {"x": 2}


def test_files_that_are_no_results_are_refused_and_left_alone(tmp_path, results):
    with pytest.raises(ResultsError, match="no results at"), reading(results):
        pass
    with pytest.raises(ResultsError, match="no results at"):
        Store(results, create=False)
    assert not results.exists()
    with pytest.raises(ResultsError, match="is a folder"):
        Store(tmp_path)
    with pytest.raises(ResultsError, match="there is no folder"):
        Store(tmp_path / "gone" / "results.sqlite")
    results.write_text("these are my notes" * 100)
    with pytest.raises(ResultsError, match="not a readable results file"):
        Store(results)
    assert results.read_text().startswith("these are my notes")
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(ResultsError, match="holds no results of flanders"):
        Store(other)


def test_a_file_that_was_made_but_not_filled_is_empty_to_readers_and_new_to_writers(results):
    results.touch()  # a process that was killed a moment after it began
    with pytest.raises(ResultsError, match="is empty"), reading(results):
        pass
    with Store(results, create=False) as store_:
        assert store_.unfinished() == []


def test_a_results_file_of_another_format_is_refused(opened, results):
    opened._connection.execute("PRAGMA user_version=99")
    with pytest.raises(ResultsError, match="has the format 99"), reading(results):
        pass


def older(path):
    """Turn a results file into one of format 4, which has no source accuracy."""
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE round DROP COLUMN source_accuracy")
    connection.execute("PRAGMA user_version=4")
    connection.close()


def test_a_file_of_the_format_before_is_read_as_it_is_and_extended_by_writers(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    opened.close()
    older(results)
    assert read_summaries(results)[0].source_accuracy is None
    assert rows(results, "PRAGMA user_version") == [(4,)]
    with Store(results, create=False) as store_:
        store_.write_round(ids[0], dataclasses.replace(record(2), source_accuracy=0.25))
    assert rows(results, "PRAGMA user_version") == [(5,)]
    assert rows(results, "SELECT number, source_accuracy FROM round") == [(1, None), (2, 0.25)]
    assert read_summaries(results)[0].source_accuracy == 0.25


def test_old_checkpoints_give_their_space_back(opened, ids, results):
    opened.claim(ids)
    opened.write_round(ids[0], record(1), state={"x": np.zeros(500_000)})
    opened.write_round(ids[0], record(2), last=True)
    opened.compact()
    opened.close()
    assert results.stat().st_size < 200_000


def test_csv_has_every_row_and_the_spec_as_columns(opened, ids, results, tmp_path):
    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    written = export_csv(results, tmp_path / "csv")
    runs, rounds, clients = (path.read_text().splitlines() for path in written)
    assert [path.name for path in written] == ["run.csv", "round.csv", "client.csv"]
    assert runs[0].startswith("id,status,")
    assert "federation.seed" in runs[0]
    assert len(runs) == 3
    assert rounds[1].startswith(f"{ids[0]},1,,0.10000000149011612,")
    assert clients[0] == "run,round,client,fate,score,probability,reason,weight,malicious"
    assert clients[1] == f"{ids[0]},1,3,dropped,0.30000000000000004,,twice its usual length,,1"
    assert sorted(p.name for p in (tmp_path / "csv").iterdir()) == ["client.csv", "round.csv", "run.csv"]


def test_parquet_has_typed_columns(opened, ids, results, tmp_path):
    from pyarrow import parquet

    opened.claim(ids)
    opened.write_round(ids[0], record(1))
    _, rounds, clients = (parquet.read_table(path) for path in export_parquet(results, tmp_path / "parquet"))
    assert rounds["accuracy"].to_pylist() == [float(np.float32(0.1))]
    assert clients["malicious"].to_pylist() == [True, True, False]
    assert clients["client"].to_pylist() == ["3", "4", "7"]
    assert clients["fate"].to_pylist() == ["dropped", "refused", "kept"]


def test_parquet_without_pyarrow_names_what_to_install(opened, results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install .*flanders-fl\[parquet\]"):
        export_parquet(results, tmp_path)


def test_an_export_to_where_nothing_can_be_written_is_an_error(opened, results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_csv(results, tmp_path / "file" / "csv")
