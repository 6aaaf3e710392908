"""Callbacks in a Flower federation, with the packages that they write to."""

from __future__ import annotations

import urllib.request

import numpy as np
import pytest

from flanders import DistanceToGlobal, KeepAll
from flanders.callbacks import MLflow, Prometheus, TensorBoard
from flanders.flower import FilteredStrategy
from flanders.flower.legacy import FilteredLegacyStrategy
from flower.federation import app, grid_of, model, play, strategies
from peers import flower

START = model((6, 7), (7,))
SKIP = "TensorBoard, MLflow or prometheus-client is not installed"


def loud(message, honest):
    for name, array in honest["arrays"].items():
        honest["arrays"][name] = app.Array((-9 * array.numpy()).astype(np.float32))
    return app.Message(honest, reply_to=message)


def accuracy(number, arrays):
    return app.MetricRecord({"accuracy": 0.1 * number, "loss": 1.0})


@pytest.mark.filterwarnings("ignore")  # what MLflow and SQLAlchemy warn of is not ours to mend
def test_a_server_app_reports_to_tensorboard_to_mlflow_and_to_a_scraper(tmp_path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=SKIP)
    mlflow = pytest.importorskip("mlflow", reason=SKIP)
    pytest.importorskip("prometheus_client", reason=SKIP)
    database = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracked, metrics = MLflow(database), Prometheus(port=0)
    server = app_with([TensorBoard(tmp_path / "board"), tracked, metrics])
    server(grid_of(6, {2: loud}), app.Context(0, 0, {}, app.RecordDict(), {}))

    board = accumulator.EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert [(e.step, round(e.value, 4)) for e in board.Scalars("accuracy")] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert "102: dropped (" in board.Tensors("not kept")[-1].tensor_proto.string_val[0].decode()
    run = mlflow.MlflowClient(database).get_run(tracked.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["filter.name"] == "distance-to-global"
    assert run.data.params["aggregator.name"] == "FedAvg"
    assert run.data.metrics["clients/dropped"] == 1
    assert run.data.metrics["accuracy"] == pytest.approx(0.3)
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
        page = answer.read().decode()
    metrics.close()
    (line,) = [line for line in page.splitlines() if line.startswith("flanders_clients{") and "dropped" in line]
    assert line.endswith(" 1.0")
    assert (
        'flanders_alarms_total{kind="dropped-in-a-row",run="live federation, distance-to-global + FedAvg"}' in page
    )


def app_with(callbacks):
    """Return a ServerApp like that of the guide, with callbacks."""
    server = flower("serverapp").ServerApp()

    @server.main()
    def main(grid, context):
        inner = strategies.FedAvg(fraction_evaluate=0.0)
        strategy = FilteredStrategy(inner, DistanceToGlobal(keep=5), callbacks=callbacks)
        strategy.start(grid, START, num_rounds=3, evaluate_fn=accuracy)

    return server


def test_a_round_is_told_once_with_its_evaluation() -> None:
    told = []
    strategy = FilteredStrategy(strategies.FedAvg(), KeepAll(), callbacks=[told.append])
    strategy.start(grid_of(3), START, num_rounds=2)
    assert [(record.number, record.accuracy) for record in told] == [(1, 0.75), (2, 0.75)]


def test_a_round_is_told_when_the_next_one_begins() -> None:
    told = []
    play(FilteredStrategy(strategies.FedAvg(), KeepAll(), callbacks=[told.append]), grid_of(3), START, 3)
    assert [record.number for record in told] == [1, 2]


def test_a_callback_that_raises_does_not_end_the_federation(caplog) -> None:
    def broken(record):
        raise OSError("disk full")

    strategy = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), KeepAll(), callbacks=[broken])
    strategy.start(grid_of(3), START, num_rounds=3)
    assert strategy.last_round.number == 3
    assert caplog.text.count("the callback broken failed (OSError: disk full)") == 1


def test_the_last_round_is_told_even_if_the_run_is_interrupted() -> None:
    told = []

    def interrupted(number, arrays):
        if number == 2:
            raise KeyboardInterrupt

    strategy = FilteredStrategy(strategies.FedAvg(fraction_evaluate=0.0), KeepAll(), callbacks=[told.append])
    with pytest.raises(KeyboardInterrupt):
        strategy.start(grid_of(3), START, num_rounds=3, evaluate_fn=interrupted)
    assert [record.number for record in told] == [1, 2]


def test_the_wrapper_for_older_strategies_takes_callbacks_too() -> None:
    common, legacy = flower("common"), flower("server.strategy")
    told = []
    strategy = FilteredLegacyStrategy(legacy.FedAvg(), KeepAll(), callbacks=[told.append])
    parameters = common.ndarrays_to_parameters([np.zeros(4, dtype=np.float32)])
    nobody = type("Nobody", (), {"num_available": lambda self: 0, "sample": lambda self, **_: []})()
    strategy.configure_fit(1, parameters, nobody)
    result = common.FitRes(common.Status(common.Code.OK, ""), parameters, 5, {})
    strategy.aggregate_fit(1, [(type("Proxy", (), {"cid": str(i)})(), result) for i in range(3)], [])
    assert told[0].ids == ("0", "1", "2")
