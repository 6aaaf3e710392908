from __future__ import annotations

import pytest

from flanders.callbacks import MLflow, RunInfo
from round_records import round_record

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
pytest.importorskip("sqlalchemy", reason="SQLAlchemy, with which MLflow keeps a local database, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # what MLflow and SQLAlchemy warn of is not ours to mend


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One database for all tests of this file, since making one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def test_settings_and_rounds_can_be_read_back_with_mlflow(server) -> None:
    callback = MLflow(server)
    callback.on_start(RunInfo("guard under attack", "abc123", {f"key{n}": "x" * 1000 for n in range(150)}))
    for number, accuracy in enumerate((0.5, 0.75), start=1):
        callback.on_round(round_record(number, [0, 1], kept=[1, 0], accuracy=accuracy))
    client = mlflow.MlflowClient(server)
    assert client.get_run(callback.run_id).info.status == "RUNNING"
    callback.on_end()
    run = client.get_run(callback.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "guard under attack")
    assert len(run.data.params) == 150
    history = client.get_metric_history(callback.run_id, "accuracy")
    assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 0.75)]
    assert run.data.metrics["clients/dropped"] == 1


def test_a_continued_run_goes_on_in_the_same_mlflow_run(server) -> None:
    info = RunInfo("run", "def456", {"seed": 1})
    ids = []
    for number in (1, 2):
        callback = MLflow(server)  # as in another process
        callback.on_start(info)
        callback.on_round(round_record(number, [0], accuracy=0.5))
        callback.on_end()
        ids.append(callback.run_id)
    assert ids[0] == ids[1]
    history = mlflow.MlflowClient(server).get_metric_history(ids[0], "accuracy")
    assert [point.step for point in history] == [1, 2]


def test_an_active_run_of_the_user_is_used_and_left_open(server) -> None:
    mlflow.set_tracking_uri(server)
    try:
        with mlflow.start_run() as active:
            callback = MLflow(server)
            callback.on_start(RunInfo("run", settings={"seed": 1}))
            callback.on_round(round_record(1, [0], accuracy=0.5))
            callback.on_end()
            assert callback.run_id == active.info.run_id
            assert mlflow.get_run(callback.run_id).info.status == "RUNNING"
            assert mlflow.get_run(callback.run_id).data.metrics["accuracy"] == 0.5
    finally:
        mlflow.set_tracking_uri(None)
