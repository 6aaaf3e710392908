"""Callbacks: what learns of each round that ends.

`Simulation`, `FilteredStrategy` and `Defense` take a list of them as `callbacks=`. The commands `flanders run` and
`flanders resume` have the option `--callback`. Each callback needs at most one extra.
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
