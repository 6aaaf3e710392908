"""The class `World`: what a simulation makes before its first round.

A world holds the clients' data, the initial model, and the test of the model. `Simulation` uses it in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from flanders.arrays import IntVector
from flanders.checks import InputError
from flanders.data import Dataset
from flanders.data.partition import natural_rows
from flanders.models import Layout, tensor_sizes
from flanders.simulation.attacker import Attacker
from flanders.simulation.evaluation import Evaluator
from flanders.simulation.laboratory import Laboratory
from flanders.simulation.poisoning import Poisoner, Scope
from flanders.simulation.probing import Outputs
from flanders.simulation.server import ServerExamples, hold_out
from flanders.simulation.setting import Setting
from flanders.simulation.training.batches import ClientData
from flanders.simulation.training.stacked_module import stacked
from flanders.simulation.training.trainer import Trainer, exact


class World:
    """The clients' data, the initial model and the test of the model, on the device that the setting names.

    Parameters
    ----------
    setting
        What to simulate.
    dataset
        Data to use in place of the dataset that the setting names. If the data say which client owns each example
        (`Dataset.owners`), the partition of the setting is not used.
    """

    def __init__(self, setting: Setting, dataset: Dataset | None = None) -> None:
        self.setting = setting
        self.device = find_device(setting.run.device)
        """The device on which everything is computed."""
        data = setting.data.dataset.load(setting.run.data_dir) if dataset is None else dataset
        self.streams = setting.streams()
        """A random generator for each role, e.g. for the split of the data; see `Setting.streams`."""
        split, training = self.streams["data"], setting.training
        held, others = hold_out(data.y_train, setting.server.examples, self.streams["server"])
        num_clients = setting.federation.num_clients
        if data.owners is None:
            rows = setting.data.partition.split(data.y_train[others], num_clients, split)
        else:
            rows = natural_rows(data.owners[others], num_clients, split)
        rows = [training.kept_examples(others[r], split) for r in rows]
        x, y, x_test, y_test = (
            torch.from_numpy(a).to(self.device) for a in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self.data = ClientData.of(x, y, rows)
        """The examples of all clients."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._draw_seed("init"))
            module = setting.model.build(data.input_shape, data.num_classes)
        self.module = module.to(self.device)
        """The model as a PyTorch module, with its initial parameters."""
        self.input_shape = data.input_shape
        """The shape of one example."""
        self.layout = Layout.of(self.module)
        """The order of the parameters in a flat vector."""
        self._run = stacked(self.module, training=False)
        self.layers = tensor_sizes(self.module)
        """The number of values in each parameter tensor, by the name of the tensor."""
        self.server = self._server_examples(x, y, held)
        """The examples that the server holds. None if it holds none."""
        self.training_seed = self._draw_seed("training")
        """The seed from which `seed_of_round` makes the seeds of all rounds."""
        poison = setting.threat.data_poison
        scope = Scope(data.num_classes, float(data.x_train.max()), float(data.x_train.min()))
        if poison is not None:
            scope = replace(scope, learned=poison.prepare(x, y, scope))
        attack, d = setting.threat.attack, self.layout.size
        freezes = attack is not None and attack.freezes
        frozen = torch.zeros(d, dtype=torch.bool, device=self.device) if freezes else None
        self.poisoner = None if poison is None else Poisoner(poison, scope, frozen)
        """Changes the examples of malicious clients. None if the setting has no data poison."""
        aim = None if poison is None else partial(poison.aim, x_test, y_test, scope)
        moving = poison is not None and poison.learns
        self.evaluator = Evaluator(self.module, x_test, y_test, aim, moving=moving)
        """Tests the global model on the test examples."""

    def _draw_seed(self, role: str) -> int:
        """Draw a seed from the random generator of a role."""
        return int(self.streams[role].integers(0, 2**63))

    def _server_examples(self, x: Tensor, y: Tensor, held: IntVector) -> ServerExamples | None:
        """Return the server's examples: the rows `held` of x and y. Return None if there are no such rows.

        In each round, the server trains on about as many batches as the median client.
        """
        if held.size == 0:
            return None
        training, rows = self.setting.training, torch.from_numpy(held).to(self.device)
        batches = training.epochs * -(-int(np.median(self.data.sizes)) // training.batch_size)
        return ServerExamples(self.module, x[rows], y[rows], training, batches)

    def laboratory(self, model: Tensor, buffers: Mapping[str, Tensor], clients: IntVector) -> Laboratory:
        """Return the given model and the examples of these clients, for computations of the attacker."""
        starts, sizes = self.data.starts[clients], self.data.sizes[clients]
        places = np.concatenate([np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)])
        examples = self.data.examples[torch.from_numpy(places).to(self.device)]
        x, y = self.data.x[examples], self.data.y[examples]
        stacked_buffers = {name: b[None] for name, b in buffers.items()}
        return Laboratory(self._run, self.layout, stacked_buffers, model, x, y, examples)

    def learn(self, model: Tensor, buffers: Mapping[str, Tensor], clients: IntVector) -> None:
        """Let the data poison learn from the global model and the examples of these malicious clients.

        The result is written into the tensor `scope.learned`, not into a new tensor. The reason: on a GPU, training
        steps are recorded once and then replayed. The recordings read the memory of this tensor.
        """
        if self.poisoner is None or not self.poisoner.poison.learns or clients.size == 0:
            return
        scope = self.poisoner.scope
        assert scope.learned is not None
        with exact(self.device, 0):
            scope.learned.copy_(self.poisoner.poison.learn(self.laboratory(model, buffers, clients), scope))

    def freeze(self, parameters: Tensor | None) -> None:
        """Set which parameters poisoned clients do not train in this round. None means that they train all."""
        if self.poisoner is not None and self.poisoner.frozen is not None:
            self.poisoner.frozen[:] = False if parameters is None else parameters

    def attack_test(
        self, model: Tensor, buffers: Mapping[str, Tensor], clients: IntVector
    ) -> Callable[[Tensor], float] | None:
        """Return a function that takes a model and returns its attack success on examples of these clients.

        The attack success is the share of examples that the model assigns to the class that the attacker wants.
        Return None if there is no data poison, or if the attacker wants no particular class.
        """
        lab = self.laboratory(model, buffers, clients)
        aimed = None if self.poisoner is None else self.poisoner.poison.aim(lab.x, lab.y, self.poisoner.scope)
        if aimed is None:
            return None
        shown, target, counts = aimed
        shown, target = shown[counts], target[counts]

        def success(tried: Tensor) -> float:
            return float((lab.classes(shown, tried) == target).double().mean()) if len(target) else 0.0

        return success

    def make_trainer(self) -> Trainer:
        """Return the trainer that trains the clients in this process."""
        run = self.setting.run
        return Trainer(self.module, self.data, self.setting.training, chunk=run.chunk, tf32=run.tf32)

    def make_attacker(self) -> Attacker:
        """Return the attacker of the setting as it is before the first round, with random generators of its own."""
        threat, count = self.setting.threat, self.setting.federation.num_clients
        return Attacker(threat, count, self.setting.streams(), layers=self.layers)

    def outputs(self, buffers: Mapping[str, Tensor]) -> Outputs:
        """Return a function that takes a model and returns its class probabilities on random inputs.

        `buffers` are the buffers of the model.
        """
        return Outputs(self._run, self.layout, self.input_shape, {name: b[None] for name, b in buffers.items()})

    def select_clients(self) -> IntVector:
        """Return the clients that the server selects for the next round, in rising order."""
        federation = self.setting.federation
        if federation.selected == federation.num_clients:
            return np.arange(federation.num_clients)
        return np.sort(self.streams["clients"].choice(federation.num_clients, federation.selected, replace=False))

    def seed_of_round(self, number: int) -> int:
        """Return the seed of a round's local training."""
        state = np.random.SeedSequence([self.training_seed, number]).generate_state(1, np.uint64)
        return int(state[0] >> 1)


def find_device(name: str) -> torch.device:
    """Return the device with this name. `"auto"` is a GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"There is no device called {name!r}. Use 'auto', 'cpu' or 'cuda'.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"The device {name!r} was asked for, but PyTorch finds no GPU here. Use 'auto' or 'cpu'.")
    return device
