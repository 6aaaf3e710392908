"""The callback `MLflow`: logs the numbers of each round to MLflow."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from flanders.callbacks.callback import Callback, RunInfo
from flanders.callbacks.measures import measures_of
from flanders.extras import needing
from flanders.record import RoundRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

LONGEST_VALUE = 500
"""The value of a parameter is cut after this many characters. Older MLflow servers refuse longer values."""
RUN_TAG = "flanders.run"
"""The name of a tag of MLflow runs. Its value is the id that the run has in the results file."""


class MLflow(Callback):
    """Log the settings of a run and the numbers of each round to MLflow.

    If a run of MLflow is active (`mlflow.start_run()`), the numbers go to this MLflow run. Otherwise the callback
    makes an MLflow run. If a run of this package is in a results file and is continued later, its numbers go to the
    same MLflow run as before. The callback needs optional packages: `pip install 'flanders-fl[mlflow]'`.

    Parameters
    ----------
    tracking_uri
        Where MLflow stores its runs: a tracking server, a folder or a database. Default: the setting of MLflow,
        e.g. `MLFLOW_TRACKING_URI`.
    experiment
        The experiment in MLflow to which a new MLflow run belongs.
    run_name
        The name of a new MLflow run. Default: a short description of the run (`RunInfo.name`).
    """

    def __init__(
        self, tracking_uri: str | None = None, experiment: str = "flanders", run_name: str | None = None
    ) -> None:
        # Without this setting, MLflow would send usage data to its makers.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        with needing("mlflow"):
            import mlflow  # noqa: F401
        self.tracking_uri, self.experiment, self.run_name = tracking_uri, experiment, run_name
        self.run_id = ""
        """The id of the MLflow run. Empty before the run starts."""
        self._client: MlflowClient | None = None
        self._own = False  # whether the callback has made the MLflow run

    def on_start(self, run: RunInfo) -> None:
        """Open the MLflow run, and log the settings as parameters."""
        from mlflow.entities import Param

        client = self._open(run)
        known = client.get_run(self.run_id).data.params
        values = {key: str(value)[:LONGEST_VALUE] for key, value in run.settings.items()}
        new = [Param(key, value) for key, value in values.items() if key not in known]
        for start in range(0, len(new), 100):  # MLflow takes at most 100 parameters at a time
            client.log_batch(self.run_id, params=new[start : start + 100])

    def on_round(self, record: RoundRecord) -> None:
        """Log the numbers of a round. The step is the number of the round."""
        from mlflow.entities import Metric

        client, now = self._open(), int(1000 * time.time())
        metrics = [Metric(name, value, now, record.number) for name, value in measures_of(record).items()]
        client.log_batch(self.run_id, metrics=metrics)

    def on_end(self) -> None:
        """End the MLflow run, if the callback made it."""
        if self._client is not None and self._own:
            self._client.set_terminated(self.run_id)
            self._client = None

    def _open(self, run: RunInfo | None = None) -> MlflowClient:
        """Return MLflow's client, after opening the MLflow run if necessary."""
        import mlflow
        from mlflow import MlflowClient

        if self._client is not None:
            return self._client
        active = mlflow.active_run()
        if active is not None and not self.run_id:
            self.run_id, self._own = active.info.run_id, False
            client = MlflowClient(self.tracking_uri)
        else:
            client, self._own = MlflowClient(self.tracking_uri), True
            self.run_id = self.run_id or self._find_or_make(client, run or RunInfo("flanders"))
            client.update_run(self.run_id, status="RUNNING")
        self._client = client
        return client

    def _find_or_make(self, client: MlflowClient, run: RunInfo) -> str:
        """Return the id of the MLflow run that belongs to `run`. If there is none yet, make one."""
        existing = client.get_experiment_by_name(self.experiment)
        experiment = client.create_experiment(self.experiment) if existing is None else existing.experiment_id
        if run.id.isalnum():
            earlier = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
            if earlier:
                return str(earlier[0].info.run_id)
        tags = {RUN_TAG: run.id} if run.id else {}
        return str(client.create_run(experiment, run_name=self.run_name or run.name, tags=tags).info.run_id)
