"""The client's side of the Flower engine: the simulator's own local training, one client at a time."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from flanders.models import Layout
from flanders.simulation import Setting, Simulation

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
SEED, POISONED = "seed", "poisoned"
PARTITION = "partition-id"


def make_client_app(setting: Setting) -> ClientApp:
    """Return the ClientApp that trains on the share of a setting's data that a node's `partition-id` names."""
    app = ClientApp()

    @app.query()
    def identify(message: Message, context: Context) -> Message:
        found = MetricRecord({PARTITION: int(context.node_config[PARTITION])})
        return Message(RecordDict({METRICS: found}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config: Any = message.content.config_records[CONFIG]
        trained = workshop(setting).train(
            int(context.node_config[PARTITION]),
            message.content.array_records[ARRAYS].to_torch_state_dict(),
            config[SEED],
            poisoned=config[POISONED],
        )
        return Message(RecordDict({ARRAYS: ArrayRecord(trained)}), reply_to=message)

    return app


class Workshop(Simulation):
    """The data and the trainer of a federation, without its rounds."""

    def train(self, client: int, tensors: Mapping[str, Tensor], seed: int, *, poisoned: bool) -> dict[str, Tensor]:
        """Return what a client makes of the global model: its parameters and buffers by name."""
        layout = Layout.of(self.module)
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        trained = self._trainer.train(
            layout.flatten(tensors),
            {name: tensors[name] for name in self.buffers},
            [client],
            seed,
            poisoner=self._poisoner,
            poisoned=[poisoned],
        )
        after = {**layout.unflatten(trained.updates[0]), **{name: b[0] for name, b in trained.buffers.items()}}
        return {name: tensor.cpu() for name, tensor in after.items()}


@lru_cache(maxsize=1)
def workshop(setting: Setting) -> Workshop:
    """Return the workshop of a setting; a process that serves many clients loads the data once."""
    return Workshop(setting)
