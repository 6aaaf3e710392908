"""Callbacks: objects that get the record of each round, and pass it on to TensorBoard, MLflow and other tools.

The record of a round says what happened to each client, and to the round as a whole.

`Simulation`, `FilteredStrategy` and `Defense` take a list of callbacks as `callbacks=`. The commands `flanders run`
and `flanders resume` have the option `--callback`. Some callbacks need optional packages. For example,
`TensorBoard` needs `pip install 'flanders-fl[tensorboard]'`.
"""

from flanders.callbacks.alarm_calls import Command, Webhook
from flanders.callbacks.callback import AnyCallback, Callback, Callbacks, RunInfo
from flanders.callbacks.mlflow import MLflow
from flanders.callbacks.prometheus import Prometheus
from flanders.callbacks.tensorboard import TensorBoard
from flanders.callbacks.wandb import WandB

__all__ = [
    "AnyCallback",
    "Callback",
    "Callbacks",
    "Command",
    "MLflow",
    "Prometheus",
    "RunInfo",
    "TensorBoard",
    "WandB",
    "Webhook",
]
