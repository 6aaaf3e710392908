"""The ClientApp of the Flower engine, which carries out simulated runs on Flower's nodes.

On each node, the ClientApp trains one client in the same way as the simulator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from flanders.simulation import Setting, World

ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
"""The names of the records in a message."""
SEED, POISONED = "seed", "poisoned"
"""The keys in the configuration of a training message: the seed, and whether to train on poisoned data."""
PARTITION = "partition-id"
"""A key in the configuration of a node. Its value is the number of the client on this node."""


def make_client_app(setting: Setting) -> ClientApp:
    """Return the ClientApp that trains the client whose number is the node's `partition-id`."""
    app = ClientApp()

    @app.query()
    def identify(message: Message, context: Context) -> Message:
        number = MetricRecord({PARTITION: int(context.node_config[PARTITION])})
        return Message(RecordDict({METRICS: number}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        config = message.content.config_records[CONFIG]
        seed = config[SEED]
        trained = workplace_of(setting).train(
            int(context.node_config[PARTITION]),
            message.content.array_records[ARRAYS].to_torch_state_dict(),
            seed if isinstance(seed, int) else 0,
            poisoned=bool(config[POISONED]),
        )
        return Message(RecordDict({ARRAYS: ArrayRecord(trained)}), reply_to=message)

    return app


class Workplace:
    """What a process needs to train clients: the data of all clients, and the simulator's trainer.

    Parameters
    ----------
    setting
        What to simulate.
    """

    def __init__(self, setting: Setting) -> None:
        self.world = World(setting)
        self.trainer = self.world.make_trainer()

    def train(self, client: int, tensors: Mapping[str, Tensor], seed: int, *, poisoned: bool) -> dict[str, Tensor]:
        """Train a client, and return its parameters and buffers by name.

        `client` is the number of the client. `tensors` is the global model. `poisoned` says whether the client
        trains on poisoned data.
        """
        layout, device = self.world.layout, self.world.device
        tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        trained = self.trainer.train(
            layout.flatten(tensors),
            {name: tensors[name] for name, _ in self.world.module.named_buffers()},
            [client],
            seed,
            poisoner=self.world.poisoner,
            poisoned=[poisoned],
        )
        after = {**layout.unflatten(trained.updates[0]), **{name: b[0] for name, b in trained.buffers.items()}}
        return {name: tensor.cpu() for name, tensor in after.items()}


@lru_cache(maxsize=1)
def workplace_of(setting: Setting) -> Workplace:
    """Return the workplace of a setting. It is cached, so that a process loads the data only once."""
    return Workplace(setting)
