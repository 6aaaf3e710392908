"""The federation, round by round: Algorithm 1 of the paper with any filter, rule and attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from flanders.aggregators import Aggregator
from flanders.arrays import BoolVector, FloatVector, IntVector
from flanders.attacks import Attack, View
from flanders.checks import InputError
from flanders.data import Dataset
from flanders.defense import Defense
from flanders.filters import Oracle
from flanders.models import Layout, last_layer
from flanders.record import RoundRecord
from flanders.round import Round
from flanders.simulation.clock import Clock
from flanders.simulation.evaluation import Evaluator
from flanders.simulation.poisoning import Poisoner, Scope
from flanders.simulation.setting import Setting
from flanders.simulation.training.batches import ClientData
from flanders.simulation.training.trainer import Trainer, exact

_libraries: ThreadpoolController | None = None

FORMAT = 1
RESUMED = ("clients", "attack", "attacker")
"""The streams that are drawn from in every round; what the others were for is done or follows from the round."""


class Simulation:
    """A federation that can be run, stopped, saved and continued.

    Parameters
    ----------
    setting
        What to simulate.
    dataset
        Data to use instead of loading what the setting names; `flanders.data.from_arrays` makes one of your own.

    Examples
    --------
    >>> from flanders.attacks import Gauss
    >>> from flanders.filters import Flanders
    >>> attacked = {"attack": Gauss(), "malicious_fraction": 0.8, "attack_start": 2}
    >>> setting = Setting(num_clients=10, rounds=3, filter=Flanders(keep=0.2), device="cpu", **attacked)
    >>> for record in Simulation(setting).run():
    ...     print(record.number, record.malicious.sum(), (record.malicious & record.kept).sum())
    1 0 0
    2 8 0
    3 8 0
    """

    def __init__(self, setting: Setting, dataset: Dataset | None = None) -> None:
        self.setting = setting
        self.device = find_device(setting.device)
        data = setting.dataset.load(setting.data_dir) if dataset is None else dataset
        self._streams = setting.streams()
        rows = setting.partition.split(data.y_train, setting.num_clients, self._streams["data"])
        rows = [setting.training.kept_examples(r, self._streams["data"]) for r in rows]
        x, y, x_test, y_test = (
            torch.from_numpy(a).to(self.device) for a in (data.x_train, data.y_train, data.x_test, data.y_test)
        )
        self._data = ClientData.of(x, y, rows)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(draw(self._streams["init"]))
            module = setting.model.build(data.input_shape, data.num_classes)
        self.module = module.to(self.device)
        layout = Layout.of(self.module)
        self.model = layout.flatten(self.module)
        """The global model, `(d,)`."""
        self._layers = dict(zip(layout.names, layout.sizes, strict=True))
        self.buffers = {name: b.detach().clone() for name, b in self.module.named_buffers()}
        """The global model's buffers (batch normalisation statistics)."""
        self.round_number = 0
        """How many rounds are done."""
        self._seed = draw(self._streams["training"])
        self._trainer = Trainer(self.module, self._data, setting.training, chunk=setting.chunk)
        poison, scope = setting.data_poison, Scope(data.num_classes, float(data.x_train.max()))
        self._poisoner = None if poison is None else Poisoner(poison, scope)
        aimed = None if poison is None else poison.aim(x_test, y_test, scope)
        self._evaluator = Evaluator(self.module, x_test, y_test, aimed)
        self._last_layer = last_layer(self.module)
        self._attackers = self._draw_attackers()
        self._memory: Any = None
        streams = self._streams["filter"], self._streams["rule"]
        self.defense = Defense(setting.filter, setting.aggregator, fallback=setting.fallback, streams=streams)
        """The filter and the aggregator, with what they remember."""

    @property
    def like(self) -> Tensor:
        """An array of the kind and on the device of this simulation, as `load_state` asks for."""
        return self.model

    def run(self) -> Iterator[RoundRecord]:
        """Carry out the rounds that are left, one at a time."""
        while self.round_number < self.setting.rounds:
            yield self.step()

    def step(self) -> RoundRecord:
        """Carry out the next round."""
        s, clock, number = self.setting, Clock(self.device), self.round_number + 1
        clients, controlled = self._select()
        malicious = controlled & (number >= s.attack_start)
        with clock.timing("train"):
            trained = self._trainer.train(
                self.model,
                self.buffers,
                clients,
                hash_round(self._seed, number),
                poisoner=self._poisoner,
                poisoned=malicious,
            )
        with clock.timing("attack"), one_blas_thread():
            updates, malicious = self._poison(trained.updates, clients, controlled, malicious)
        ids = np.where(malicious, s.num_clients * number + clients, clients) if s.sybils else clients
        weights = self._data.sizes[clients].astype(float)
        round_ = Round(updates, tuple(ids.tolist()), weights, self.model, layers=self._layers)
        truth = malicious if s.informed else None
        notes: list[str] = []
        with clock.timing("filter"), one_blas_thread():
            fallback = None if s.fallback is None else self._by(s.fallback, round_, clock, notes)
            aggregate = self._by(s.aggregator, round_, clock, notes, truth)
            if isinstance(s.filter, Oracle):
                self.defense.filter = Oracle(tuple(ids[malicious].tolist()))
            outcome = self.defense.step(round_, aggregate, fallback)
        with clock.timing("aggregate"):
            self.buffers = averaged(self.buffers, trained.buffers, outcome.kept, round_.weights)
        self.model, self.round_number = outcome.model, number
        with clock.timing("evaluate"), exact(self.device, 0):
            accuracy, loss, attack_success = self._evaluator.evaluate(self.model, self.buffers)
        notes = [note for note in (outcome.note, *notes) if note]
        records = zip(outcome.clients, malicious.tolist(), strict=True)
        told = tuple(replace(record, malicious=truth) for record, truth in records)
        return RoundRecord(number, told, "; ".join(notes), accuracy, loss, attack_success, clock.seconds)

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue bit for bit, fit for `flanders.state.save_state`."""
        return {
            "format": FORMAT,
            "round": self.round_number,
            "model": self.model,
            "buffers": dict(self.buffers),
            "defense": self.defense.memory,
            "attack": self._memory,
            "streams": {role: self._streams[role].bit_generator.state for role in RESUMED},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same setting; read it with `load_state(path, like=simulation.like)`."""
        shape = tuple(getattr(state.get("model"), "shape", ()))
        if state.get("format") != FORMAT or shape != tuple(self.model.shape):
            raise InputError(
                f"This state does not fit: it has format {state.get('format')!r} and a model of shape {shape}; "
                f"format {FORMAT} and {tuple(self.model.shape)} are needed. "
                "Start the run afresh, or use the setting it was saved with."
            )
        self.round_number = state["round"]
        self.model = state["model"].to(self.device)
        self.buffers = {name: b.to(self.device) for name, b in state["buffers"].items()}
        self.defense.memory, self._memory = state["defense"], state["attack"]
        for role, position in state["streams"].items():
            self._streams[role].bit_generator.state = position

    def _draw_attackers(self) -> IntVector:
        s = self.setting
        return self._streams["attacker"].choice(s.num_clients, s.num_malicious, replace=False)

    def _select(self) -> tuple[IntVector, BoolVector]:
        """Return the clients of the round, sorted, and which of them the attacker controls."""
        s = self.setting
        clients = np.arange(s.num_clients)
        if s.selected < s.num_clients:
            clients = np.sort(self._streams["clients"].choice(s.num_clients, s.selected, replace=False))
        if s.rotating:
            self._attackers = self._draw_attackers()
        return clients, np.isin(clients, self._attackers)

    def _poison(
        self, updates: Tensor, clients: IntVector, controlled: BoolVector, malicious: BoolVector
    ) -> tuple[Tensor, BoolVector]:
        """Return what the server receives, and who sent poison: the attacker's clients send what it likes.

        The attacker also watches the rounds before it starts. Without a client in a round it sees nothing.
        """
        s = self.setting
        if not controlled.any():
            return updates, malicious
        mine = torch.from_numpy(np.flatnonzero(controlled)).to(self.device)
        own = updates[mine]
        if s.data_poison is not None and malicious.any():
            own = s.data_poison.send(own, self.model, len(clients))
        sent = own
        if s.attack is not None:
            others = np.flatnonzero(~controlled)
            view = View(
                own,
                self.model,
                len(clients),
                tuple(clients[controlled].tolist()),
                benign=updates[torch.from_numpy(others).to(self.device)] if s.omniscient else None,
                benign_clients=tuple(clients[others].tolist()) if s.omniscient else (),
                memory=self._memory,
                server_columns=self._watched() if s.omniscient else None,
                last_layer=self._last_layer,
            )
            if malicious.any():
                sent = crafted(s.attack, view, self._streams["attack"])
                if s.data_poison is None and s.attack.rests(view):
                    malicious = np.zeros_like(malicious)
            self._memory = s.attack.remember(view, sent)
        if malicious.any():
            updates[mine] = sent.to(updates.dtype)
        return updates, malicious

    def _watched(self) -> IntVector:
        """Return the parameters the filter looks at: all of them, if it does not always look at the same few."""
        d = len(self.model)
        columns = self.setting.filter.visible_columns(self.defense.state, d)
        return np.arange(d) if columns is None else columns

    def _by(
        self, rule: Aggregator, round_: Round, clock: Clock, notes: list[str], truth: BoolVector | None = None
    ) -> Callable[[IntVector], Tensor]:
        """Return how a rule aggregates rows of the round; with `truth` it is told how many are malicious."""

        def aggregate(rows: IntVector) -> Tensor:
            chosen = rule
            if truth is not None:
                chosen = replace(rule, num_malicious=int(truth[rows].sum()))  # type: ignore[type-var]
            with clock.timing("aggregate"):
                model: Tensor = self.defense.aggregate(chosen, round_, rows)
            if bool(torch.isfinite(model).all()):
                return model
            notes.append("the aggregate was not finite: the global model stays")
            return self.model

        return aggregate


def crafted(attack: Attack, view: View, rng: np.random.Generator) -> Tensor:
    """Return what an attack sends, or say that it is not what it must be."""
    sent = attack.craft(view, rng)
    wanted = tuple(view.own.shape)
    if not isinstance(sent, Tensor):
        found = f"{type(sent).__module__}.{type(sent).__qualname__}".removeprefix("builtins.")
        what = f"{found}, expected a torch.Tensor of shape {wanted}"
    elif tuple(sent.shape) != wanted:
        what = f"shape {tuple(sent.shape)}, expected {wanted}"
    else:
        return sent
    raise InputError(f"{type(attack).__name__}.craft returned {what}: a row for each of the attacker's clients.")


def averaged(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], kept: IntVector, weights: FloatVector
) -> dict[str, Tensor]:
    """Return the weighted average of the kept clients' buffers; what is not finite does not count.

    It is taken of the changes since `before`, so that what no client changed stays as it is, bit for bit.
    """
    if kept.size == 0:
        return dict(before)
    new = {}
    for name, old in before.items():
        at = old.flatten().double()
        rows = after[name][torch.from_numpy(kept).to(old.device)].double().view(kept.size, -1)
        usable = torch.isfinite(rows).all(1)
        share = torch.from_numpy(weights[kept]).to(old.device) * usable
        changes = torch.where(usable[:, None], rows - at, 0.0)
        mean = at + (share / share.sum().clamp(min=1e-300)) @ changes
        new[name] = (mean if old.is_floating_point() else mean.round()).to(old.dtype).view(old.shape)
    return new


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep NumPy's linear algebra to one thread.

    PyTorch's idle threads go on spinning for a while; NumPy's would wait for the same cores, which
    takes tens of times longer than the small products it is asked for.
    """
    global _libraries
    if _libraries is None:
        _libraries = ThreadpoolController()
    limited: AbstractContextManager[object] = _libraries.limit(limits=1, user_api="blas")
    return limited


def draw(rng: np.random.Generator) -> int:
    """Draw a seed."""
    return int(rng.integers(0, 2**63))


def hash_round(seed: int, number: int) -> int:
    """Return the seed of a round's local training."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0] >> 1)


def find_device(name: str) -> torch.device:
    """Return the device of that name; `"auto"` is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"There is no device called {name!r}. Use 'auto', 'cpu' or 'cuda'.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"The device {name!r} was asked for, but PyTorch finds no GPU here. Use 'auto' or 'cpu'.")
    return device
