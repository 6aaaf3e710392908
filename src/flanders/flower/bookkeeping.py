"""What happens around the decision of a round: choosing clients that are not banned, saving, and reporting."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from flanders.audit import Head
from flanders.checks import InputError
from flanders.defense import Defense
from flanders.flower.bans import Ban
from flanders.flower.identity import AskedClient, Identify, asked_clients
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.replies import SortedReplies
from flanders.flower.results_recorder import Recorder
from flanders.flower.round_audit import RoundAudit
from flanders.flower.round_report import metrics_of
from flanders.flower.saved_memory import ELSEWHERE, SavedMemory, StateFolder
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.round import ClientId, by_name


@dataclass
class Bookkeeping:
    """Everything that `FilteredStrategy` remembers besides its filter."""

    memory: SavedMemory
    """What is saved after each round."""
    folder: StateFolder
    recorder: Recorder
    audit: RoundAudit
    ban: Ban | None
    arrays: ArrayRecord
    """The global model after the last round."""
    done_before: int = 0
    """The number of rounds of earlier starts."""
    asked: list[AskedClient] = field(default_factory=list)
    """The clients that were asked last."""
    banned: list[AskedClient] = field(default_factory=list)
    """The clients that the strategy chose for the last training round, but that were not asked."""

    def ask(self, messages: Iterable[Message], grid: Grid, identify: Identify, number: int) -> list[Message]:
        """Return the messages to clients that are not banned, and remember these clients."""
        self.open_audit()
        messages = list(messages)
        chosen = asked_clients(messages, grid, identify)
        out = [self.memory.bans.is_banned(one.client, number) for one in chosen]
        self.asked = [one for one, banned in zip(chosen, out, strict=True) if not banned]
        self.banned = [one for one, banned in zip(chosen, out, strict=True) if banned]
        return [message for message, banned in zip(messages, out, strict=True) if not banned]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep other processes out of the federation's files while its rounds are carried out."""
        with self.folder.locked(), self.recorder.running(), contextlib.closing(self.audit):
            self.open_audit()
            yield

    def open_audit(self) -> None:
        """Continue the audit trail, or begin it, if there is one."""
        head = self.memory.audit_head
        self.audit.open(self.memory.rounds, Head.parse(head) if head else None)

    @property
    def nodes(self) -> dict[ClientId, AskedClient]:
        """The node of each client of the round, by the client's name."""
        return {one.client: one for one in [*self.asked, *self.banned]}

    def model_arrays(self, arrays: ArrayRecord, unscored: Callable[[str], bool]) -> ModelArrays:
        """Return the arrays of the global model as they were in the first round.

        Strategies may change the types of the arrays later. Names and shapes must stay.
        """
        model = self.memory.model_arrays
        if model is None:
            model = ModelArrays.of(arrays, unscored)
            self.memory = self.memory.of_model(model)
        if difference := model.difference(arrays):
            where = "" if self.folder.path is None else f", which {self.folder.path} holds. {ELSEWHERE}"
            raise InputError(
                f"The global model has other arrays than in earlier rounds ({difference}){where or '.'}"
            )
        return model

    def excuse(self, part: str, error: Exception, name: str) -> None:
        """Raise the error of a strategy if the strategy has never worked, since then no client caused it.

        `name` is the name of the strategy. `part` is its role: `strategy`, `fallback` or `evaluation`.
        """
        if part in self.memory.worked:
            return
        if part == "fallback":
            raise InputError(
                f"The `fallback` {name} failed before it ever worked: {error} "
                "Only its `aggregate_train` is called. Choose a strategy that needs nothing else, e.g. FedMedian()."
            ) from error
        raise error

    def has_worked(self, part: str) -> None:
        """Remember that the strategy in this role has worked; see `excuse`."""
        self.memory = self.memory.having_worked(part)

    def record(
        self, number: int, judged: Iterable[ClientRecord], found: SortedReplies, seconds: Mapping[str, float]
    ) -> RoundRecord:
        """Return the record of a round: the judged clients, the failed and the banned ones, by name."""
        clients = {record.client: record for record in [*judged, *found.failed.values()]}
        for one in self.banned:
            last = self.memory.bans.until[one.client]
            clients[one.client] = ClientRecord(one.client, Fate.BANNED, reason=f"until round {last}")
        everyone = list(clients.values())
        order = by_name(list(clients))
        return RoundRecord(number, tuple(everyone[i] for i in order), "; ".join(found.notes), seconds=seconds)

    def finish_round(self, record: RoundRecord, new: ArrayRecord | None, defense: Defense) -> MetricRecord:
        """Count offences, save the memory and the global model, report the round, and return its metrics.

        `new` is the new global model; None if it stays as it was.
        """
        bans = self.memory.bans
        if self.ban is not None:
            kept = [client.client for client in record.having(Fate.KEPT)]
            # A filter that keeps nobody has not told good clients from bad ones.
            bad = record.having(Fate.DROPPED, Fate.REFUSED) if kept else record.having(Fate.REFUSED)
            bans = bans.after_round(self.ban, record.number, [client.client for client in bad], kept)
        self.memory = replace(self.memory, rounds=record.number, bans=bans, defense=defense.memory)
        before, nodes, stayed = self.arrays, self.nodes, new is None
        if new is not None:
            self.arrays = new.copy()  # the caller may change the record that it gets
        # The trail comes first: if the server is killed between the two, the trail has the round twice, never not.
        if head := self.audit.write(record, nodes, before, self.arrays):
            self.memory = replace(self.memory, audit_head=str(head))
        self.folder.save(self.memory, self.arrays)
        self.recorder.tell(record, nodes, stayed=stayed)
        return MetricRecord(metrics_of(record, nodes, stayed=stayed))

    def completed(self, result: Result) -> Result:
        """Count the rounds of a result from the very first, and add the numbers of each client."""
        done = self.done_before
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {number + done: record for number, record in getattr(result, name).items()})
        for number, details in self.recorder.details.items():
            if number in result.train_metrics_clientapp:
                result.train_metrics_clientapp[number].update(details)
        self.recorder.details.clear()
        return result
