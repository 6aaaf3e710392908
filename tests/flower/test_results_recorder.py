from __future__ import annotations

import contextlib
import csv
import json
import logging
import sqlite3
import time

import numpy as np
import pytest

from flanders import DistanceToGlobal, Flanders, KeepAll
from flanders.checks import InputError
from flanders.cli import main
from flanders.flower import Ban, FilteredStrategy
from flanders.report.compared_runs import ComparedRuns
from flanders.report.run_reading import read_results
from flanders.results.record_columns import to_cell
from flanders.watch.feed import Feed
from flower.federation import Client, LocalGrid, app, grid_of, model, play, strategies

START = model((6, 7), (7,))


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((-9 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


def nan(message, honest):
    honest["arrays"]["layer1.weight"] = app.Array(np.full(7, np.nan, dtype=np.float32))
    return app.Message(honest, reply_to=message)


def live(path, rounds=5, evaluate_fn=None, fraction_evaluate=0.0, **options):
    strategy = FilteredStrategy(
        strategies.FedAvg(fraction_evaluate=fraction_evaluate),
        Flanders(keep=0.8),
        fallback=strategies.FedMedian(),
        ban=Ban(after=2, rounds=2),
        results=path,
        **options,
    )
    return strategy.start(grid_of(8, {3: loud, 5: nan}), START, num_rounds=rounds, evaluate_fn=evaluate_fn)


def accuracy(number, arrays):
    return app.MetricRecord({"server_accuracy": 0.1 * number, "server_loss": 1 / (number + 1)})


def test_show_report_and_export_work_on_a_live_federation(tmp_path, capsys) -> None:
    results = tmp_path / "live.sqlite"
    live(results, evaluate_fn=accuracy)
    assert main(["show", str(results)]) == 0
    head, line = capsys.readouterr().out.splitlines()
    row = dict(zip(head.split(), line.split(), strict=True))
    assert row["attack"] == "unknown"
    assert (row["filter"], row["aggregator"], row["status"], row["rounds"]) == ("flanders", "FedAvg", "done", "5")
    assert (row["best"], row["final"], row["precision"], row["recall"]) == ("0.500", "0.500", "-", "-")
    assert main(["show", str(results), row["run"]]) == 0
    assert "array 'layer1.weight' is not finite" in capsys.readouterr().out
    assert main(["show", str(results), row["run"], "--json"]) == 0
    rounds = json.loads(capsys.readouterr().out)["rounds"]
    assert [r["kept"] for r in rounds] == [7, 6, 6, 5, 5]  # four fifths of those who are neither refused nor banned
    assert rounds[0]["caught"] is None
    assert main(["report", str(results)]) == 0
    assert '"truth":false' in results.with_suffix(".html").read_text()
    assert main(["plot", str(results), "--out", str(tmp_path / "figures"), "--format", "svg"]) == 0
    assert main(["export", str(results), "--csv", str(tmp_path)]) == 0
    with open(tmp_path / "client.csv") as file:
        clients = [row for row in csv.DictReader(file) if row["round"] == "4"]
    assert {row["malicious"] for row in clients} == {""}
    told = {row["client"]: (row["fate"], row["reason"]) for row in clients if row["fate"] != "kept"}
    assert told["103"] == ("banned", "until round 5")
    assert told["105"] == ("banned", "until round 4")


def test_each_round_can_be_watched_while_the_server_runs(tmp_path) -> None:
    feed, seen = Feed(tmp_path / "live.sqlite"), []

    def watching(number, arrays):
        if number:
            [run] = feed.results()["runs"].values()
            seen.append((run["status"], run["rounds"], run["cells"]["final"], run["live"], run["truth"]))
        return accuracy(number, arrays)

    live(tmp_path / "live.sqlite", rounds=3, evaluate_fn=watching)
    # A round is there before its accuracy has been measured.
    assert seen == [
        ("running", [1], None, True, False),
        ("running", [1, 2], None, True, False),
        ("running", [1, 2, 3], None, True, False),
    ]
    [run] = feed.results()["runs"].values()
    assert (run["status"], run["accuracy"]) == ("done", [0.1, 0.2, 0.3])


def test_weights_and_models_that_stayed_reach_the_results_file(tmp_path) -> None:
    live(tmp_path / "live.sqlite", rounds=2)
    (run,) = read_results(tmp_path / "live.sqlite")
    assert np.isfinite(run.numbers["weight"][run.kept]).all()
    with contextlib.closing(sqlite3.connect(tmp_path / "live.sqlite")) as db:
        assert db.execute("SELECT DISTINCT stayed, widening FROM round").fetchall() == [(0, 1.0)]

    class Failing(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            return super().aggregate_train(server_round, replies) if server_round < 2 else (None, None)

    strategy = FilteredStrategy(Failing(fraction_evaluate=0.0), KeepAll(), results=tmp_path / "stays.sqlite")
    strategy.start(grid_of(3), START, num_rounds=2)
    with contextlib.closing(sqlite3.connect(tmp_path / "stays.sqlite")) as db:
        assert db.execute("SELECT number, stayed FROM round").fetchall() == [(1, 0), (2, 1)]


def test_a_live_run_is_no_yardstick_for_others(tmp_path) -> None:
    """Nobody is known to be malicious in it, which is not the same as nobody being malicious."""
    live(tmp_path / "live.sqlite")
    (run,) = read_results(tmp_path / "live.sqlite")
    assert not run.truth
    assert not run.malicious.any()
    assert np.isnan([run.detection.precision, run.detection.recall, run.detection.false_positive_rate]).all()
    names = ComparedRuns([run])
    assert names.twin(0) is None
    assert names.labels == ["flanders + FedAvg · attacks unknown"]


def test_accuracy_comes_from_the_clients_where_the_server_has_no_data(tmp_path) -> None:
    live(tmp_path / "live.sqlite", rounds=2, fraction_evaluate=1.0)
    (run,) = read_results(tmp_path / "live.sqlite")
    np.testing.assert_allclose(run.accuracy, [0.75, 0.75])
    np.testing.assert_allclose(run.loss, [0.5, 0.5])


def test_the_rounds_of_a_restarted_serverapp_are_in_the_same_run(tmp_path) -> None:
    for rounds in (2, 5):
        live(tmp_path / "live.sqlite", rounds, state_dir=tmp_path / "state")
    (run,) = read_results(tmp_path / "live.sqlite")
    assert run.rounds.tolist() == [1, 2, 3, 4, 5]
    assert run.status == "done"


def test_a_run_that_is_started_again_with_nothing_left_to_do_stays_done(tmp_path) -> None:
    for rounds in (2, 2, 1):
        live(tmp_path / "live.sqlite", rounds, state_dir=tmp_path / "state")
        (run,) = read_results(tmp_path / "live.sqlite")
        assert (run.status, run.rounds.tolist()) == ("done", [1, 2])


def test_federations_without_a_common_state_are_runs_of_their_own(tmp_path) -> None:
    live(tmp_path / "live.sqlite", 1)
    live(tmp_path / "live.sqlite", 2)
    assert [run.rounds.size for run in read_results(tmp_path / "live.sqlite")] == [1, 2]


def test_resume_leaves_a_live_federation_alone(tmp_path, capsys) -> None:
    class Cut(LocalGrid):
        def push_messages(self, messages):
            if len(self.sent) >= 8:
                raise ConnectionError
            return super().push_messages(messages)

    results = tmp_path / "live.sqlite"
    strategy = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), KeepAll(), results=results)
    with pytest.raises(ConnectionError):
        strategy.start(grid_of(4, kind=Cut), START, num_rounds=5)
    (run,) = read_results(results)
    assert (run.status, run.rounds.size) == ("pending", 2)
    assert main(["resume", str(results)]) == 0
    assert "pending" in capsys.readouterr().out


def heartbeat(path):
    with contextlib.closing(sqlite3.connect(path, timeout=300)) as db:
        return db.execute("SELECT heartbeat FROM run").fetchone()[0]


def test_a_federation_is_known_to_be_alive_however_long_a_round_takes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("flanders.results.heartbeat.HEARTBEAT", 0.01)
    results, end = tmp_path / "live.sqlite", time.monotonic() + 300

    def slow(message, honest):
        before = heartbeat(results)
        while heartbeat(results) == before and time.monotonic() < end:
            time.sleep(0.01)
        return app.Message(honest, reply_to=message)

    strategy = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), KeepAll(), results=results)
    strategy.start(grid_of(3, {1: slow}), START, num_rounds=1)
    assert time.monotonic() < end


def test_every_round_that_is_written_says_that_the_federation_is_alive(tmp_path) -> None:
    results = tmp_path / "live.sqlite"
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), results=results)
    play(strategy, grid_of(3), START, 1)
    with contextlib.closing(sqlite3.connect(results)) as db, db:
        db.execute("UPDATE run SET heartbeat = 0")
    play(strategy, grid_of(3), START, 1, first=2)
    assert heartbeat(results) > 0


def test_a_results_file_that_cannot_be_used_is_told_before_the_first_round(tmp_path) -> None:
    grid = grid_of(3)
    with pytest.raises(InputError, match="is a folder"):
        FilteredStrategy(strategies.FedAvg(), KeepAll(), results=tmp_path).start(grid, START)
    with pytest.raises(InputError, match=r"there is no folder .*nowhere\. Make it, or name another\.$"):
        FilteredStrategy(strategies.FedAvg(), KeepAll(), results=tmp_path / "nowhere" / "r.sqlite").start(
            grid, START
        )
    assert grid.sent == []


def test_a_results_file_that_fails_later_costs_the_record_not_the_run(tmp_path, flower_log) -> None:
    """Here it was made before truths could be unknown."""
    results = tmp_path / "old.sqlite"
    live(results, 1)
    with sqlite3.connect(results) as db:
        (table,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'client'").fetchone()
        db.execute("DROP TABLE client")
        db.execute(table.replace("malicious INTEGER,", "malicious INTEGER NOT NULL,"))
    result = live(results, 2)
    assert len(result.train_metrics_clientapp) == 2
    assert "flanders: round 2 is not in the results file" in flower_log.text


def test_a_filter_of_the_users_own_is_recorded_whatever_its_parameters(tmp_path) -> None:
    class Mine(KeepAll):
        def __init__(self):
            self.__dict__["inner"] = Flanders(keep=0.5)

    strategy = FilteredStrategy(strategies.FedAvg(), Mine(), results=tmp_path / "live.sqlite")
    strategy.start(grid_of(3), START, num_rounds=1)
    (run,) = read_results(tmp_path / "live.sqlite")
    assert run.spec["filter"]["name"] == "Mine"
    assert run.spec["filter"]["inner"].startswith("Flanders(keep=0.5")


def test_a_line_of_the_log_names_some_and_counts_the_rest(flower_log) -> None:
    silent = {i: lambda message, honest: None for i in range(50)}
    FilteredStrategy(strategies.FedAvg(), KeepAll()).start(grid_of(50, silent), START, num_rounds=1)
    (line,) = [r.getMessage() for r in flower_log.records if r.getMessage().startswith("flanders: round 1")]
    assert "119 [no reply] and 30 more; no reply can be used" in line


def test_a_round_whose_aggregate_is_of_no_use_is_a_warning_and_a_metric(flower_log) -> None:
    class Moody(strategies.FedAvg):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            return (None if server_round == 1 else arrays), metrics

    strategy = FilteredStrategy(Moody(fraction_evaluate=0.0), Flanders(keep=0.8))
    result = strategy.start(grid_of(4), START, num_rounds=3)
    assert [result.train_metrics_clientapp[n]["flanders-stayed"] for n in (1, 2, 3)] == [1, 0, 0]
    told = [(r.levelname, r.getMessage()) for r in flower_log.records if "flanders: round" in r.getMessage()]
    assert [level for level, _ in told] == ["WARNING", "INFO", "INFO"]
    assert told[0][1].endswith("kept 4 of 4 replies; the strategy returned no model: the global model stays")


def test_what_is_kept_of_a_round_is_numbers() -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll())
    play(strategy, grid_of(4), START, 3)
    assert list(strategy._books.recorder.details) == [1, 2, 3]
    assert {type(v) for lists in strategy._books.recorder.details[1].values() for v in lists} == {int, float}
    strategy.start(grid_of(4), START, num_rounds=5)
    assert strategy._books.recorder.details == {}


def test_a_result_has_no_secrets_and_no_arrays_of_clients() -> None:
    result = FilteredStrategy(strategies.FedAvg(), Flanders(keep=0.5)).start(grid_of(4), START, num_rounds=2)
    assert set(result.train_metrics_clientapp[2]) == {
        "train_loss", "flanders-kept", "flanders-dropped", "flanders-refused", "flanders-silent", "flanders-banned",
        "flanders-stayed", "flanders-threshold", "flanders-unused-nodes", "flanders-nodes", "flanders-fates",
        "flanders-scores", "flanders-probabilities",
    }  # fmt: skip


def test_a_round_in_which_somebody_was_dropped_is_a_warning(flower_log) -> None:
    strategy = FilteredStrategy(strategies.FedAvg(), DistanceToGlobal(keep=7))
    play(strategy, grid_of(8, {3: loud}), START, 1)
    play(FilteredStrategy(strategies.FedAvg(), KeepAll()), grid_of(8), START, 1)
    dropped, fine = [record for record in flower_log.records if "flanders: round 1" in record.getMessage()]
    assert dropped.levelno == logging.WARNING
    assert "dropped 103 [" in dropped.getMessage()
    assert fine.levelno == logging.INFO


def test_no_id_of_a_node_ends_the_run(tmp_path) -> None:
    """Flower's node ids have 64 bits and no sign."""
    grid = LocalGrid({2**64 - 1 - i: Client(i) for i in range(4)})
    for rounds in (2, 3):  # the second time from the saved state
        strategy = FilteredStrategy(
            strategies.FedAvg(),
            KeepAll(),
            results=tmp_path / "r.sqlite",
            state_dir=tmp_path,
            identify=lambda node: node.node_id,
        )
        result = strategy.start(grid, model((6, 7)), num_rounds=rounds)
    assert result.train_metrics_clientapp[3]["flanders-kept"] == 4
    (run,) = read_results(tmp_path / "r.sqlite")
    assert run.rounds.tolist() == [1, 2, 3]
    with sqlite3.connect(tmp_path / "r.sqlite") as db:
        names = [name for (name,) in db.execute("SELECT client FROM client WHERE round = 3 ORDER BY client")]
    assert names == [str(2**64 - 4 + i) for i in range(4)]


def test_half_of_a_character_in_a_text_does_not_end_the_run() -> None:
    assert to_cell("\ud800 node") == "? node"
