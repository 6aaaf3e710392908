"""The class `Bookkeeping`: all work of `FilteredStrategy` besides filtering and aggregating.

It leaves out banned clients. After each round it saves the memory, and writes the round to the log, to the results
file and to the audit trail. An audit trail is a file of all decisions, in which later changes can be detected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from flanders.audit import Head
from flanders.checks import InputError
from flanders.client_ids import ClientId, by_name
from flanders.defense import Defense
from flanders.flower.bans import Ban
from flanders.flower.identity import AskedClient, Identify, asked_clients
from flanders.flower.model_arrays import ModelArrays
from flanders.flower.replies import SortedReplies
from flanders.flower.results_recorder import Recorder
from flanders.flower.round_audit import RoundAudit
from flanders.flower.round_report import metrics_of
from flanders.flower.saved_memory import SavedMemory, StateFolder
from flanders.hosts.state_folder import ELSEWHERE
from flanders.record import ClientRecord, Fate, RoundRecord

TOO_LONG = 3
"""After this many rounds in a row in which nobody was kept, there is a warning in the log. A single such round may
be bad luck."""


@dataclass
class Bookkeeping:
    """The state of a `FilteredStrategy`, except for its filter, and the methods that save and report it."""

    memory: SavedMemory
    """What is saved after each round."""
    folder: StateFolder
    """Where the memory is saved."""
    recorder: Recorder
    """Writes the log and the results file."""
    audit: RoundAudit
    """Writes the audit trail."""
    ban: Ban | None
    """When clients are banned; None if no client is ever banned."""
    arrays: ArrayRecord
    """The global model after the last round."""
    done_before: int = 0
    """The number of rounds that were done in earlier calls of `start`. Flower counts from 1 in every call."""
    asked: list[AskedClient] = field(default_factory=list)
    """The clients that the last messages were sent to."""
    banned: list[AskedClient] = field(default_factory=list)
    """The clients that the strategy chose, but that got no message, since they are banned."""
    rounds_without_kept: int = 0
    """How many rounds have passed since the last round in which somebody was kept."""

    def catch_up(self, defense: Defense) -> None:
        """If another ServerApp has saved rounds in the folder, continue after these rounds."""
        if self.folder.has_changed:
            saved = self.folder.recall(self.memory, defense)
            self.arrays, self.memory = saved.record, replace(saved, model={})
            self.recorder.continue_run(saved.run)
        self.done_before = self.memory.rounds

    def ask(self, messages: Iterable[Message], grid: Grid, identify: Identify, number: int) -> list[Message]:
        """Return the messages to clients that have a name and no ban.

        Remember the clients that get a message, and the banned clients.
        """
        self.open_audit()
        messages, self.asked, self.banned = list(messages), [], []
        to_send = []
        receivers = asked_clients(messages, grid, identify, self.memory.roster.nodes)
        for message, receiver in zip(messages, receivers, strict=True):
            if receiver is not None and self.memory.bans.is_banned(receiver.client, number):
                self.banned.append(receiver)
            elif receiver is not None:
                self.asked.append(receiver)
                to_send.append(message)
        chosen = [*self.asked, *self.banned]
        roster = self.memory.roster.having_asked((asked.node, asked.client) for asked in chosen)
        self.memory = replace(self.memory, roster=roster)
        return to_send

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep other processes out of the results file and the audit trail while the rounds are carried out."""
        with self.recorder.running(), contextlib.closing(self.audit):
            self.open_audit()
            yield

    def open_audit(self) -> None:
        """Begin or continue the audit trail. Without a trail, do nothing."""
        head = self.memory.audit_head
        self.audit.open(self.memory.run, self.memory.rounds, Head.parse(head) if head else None)

    @property
    def nodes(self) -> dict[ClientId, AskedClient]:
        """The clients of the round, each with its node, by the name of the client."""
        return {asked.client: asked for asked in [*self.asked, *self.banned]}

    def label(self, client: ClientId) -> str:
        """Return the name under which the log shows a client of this round."""
        return self.nodes[client].label

    def model_arrays(self, arrays: ArrayRecord, unscored: Callable[[str], bool]) -> ModelArrays:
        """Return the description of the model's arrays.

        The description is made in the first round. It stays the same, even if the strategy later changes the types
        of the arrays. Raise an `InputError` if `arrays` have other names or shapes than in the first round.
        """
        model = self.memory.model_arrays
        if model is None:
            model = ModelArrays.of(arrays, unscored)
            self.memory = replace(self.memory, arrays=tuple(astuple(array) for array in model.arrays))
        if difference := model.difference(arrays):
            where = "" if self.folder.path is None else f", which {self.folder.path} holds. {ELSEWHERE}"
            raise InputError(
                f"The global model has other arrays than in earlier rounds ({difference}){where or '.'}"
            )
        return model

    def excess(self, record: ArrayRecord) -> str:
        """Return in words what is too large in a reply; empty if nothing is too large."""
        model = self.memory.model_arrays
        return "" if model is None else model.excess(record)

    def raise_if_never_worked(self, part: str, error: Exception, name: str, sorted_replies: SortedReplies) -> None:
        """Raise the error of the user's filter or strategy if clients probably did not cause it. Else do nothing.

        `part` says what has failed: `strategy`, `fallback`, `evaluation` or `filter`. `name` is the name of its
        class. If this part has never worked, and no reply of the round is missing or refused, the mistake is
        probably in the part itself. In all other cases clients may have caused the error, and clients must not be
        able to end the run.
        """
        if part in self.memory.worked or sorted_replies.failed:
            return
        if part == "fallback":
            raise InputError(
                f"The `fallback` {name} failed before it ever worked: {error} "
                "Only its `aggregate_train` is called. Choose a strategy that needs nothing else, e.g. FedMedian()."
            ) from error
        raise error

    def has_worked(self, part: str) -> None:
        """Remember that `part` has worked. `raise_if_never_worked` lists the parts."""
        if part not in self.memory.worked:
            self.memory = replace(self.memory, worked=(*self.memory.worked, part))

    def record(
        self,
        number: int,
        judged: Iterable[ClientRecord],
        sorted_replies: SortedReplies,
        seconds: Mapping[str, float],
    ) -> RoundRecord:
        """Return the record of a round, with all its clients sorted by name.

        `judged` are the clients that the filter has kept or dropped. The clients without a usable reply are in
        `sorted_replies`. The banned clients are added here.
        """
        clients = {record.client: record for record in [*judged, *sorted_replies.failed.values()]}
        for banned in self.banned:
            last = self.memory.bans.until[banned.client]
            clients[banned.client] = ClientRecord(banned.client, Fate.BANNED, reason=f"until round {last}")
        everyone = list(clients.values())
        in_order = tuple(everyone[i] for i in by_name(list(clients)))
        record = RoundRecord(number, in_order, seconds=seconds, widening=sorted_replies.widening)
        self.rounds_without_kept = 0 if record.having(Fate.KEPT) else self.rounds_without_kept + 1
        if self.rounds_without_kept >= TOO_LONG:
            sorted_replies.warnings.append(
                f"nobody was kept for {self.rounds_without_kept} rounds in a row: look at the clients, most may be "
                "malicious"
            )
        return replace(record, note="; ".join([*sorted_replies.notes, *sorted_replies.warnings]))

    def finish_round(
        self, record: RoundRecord, new: ArrayRecord | None, defense: Defense, *, warn: bool
    ) -> MetricRecord:
        """Update the bans, save the memory and the global model, report the round, and return its metrics.

        `new` is the new global model; None if the old model stays. `warn` says that the user should look at the
        round.
        """
        bans = self.memory.bans
        if self.ban is not None:
            kept = [client.client for client in record.having(Fate.KEPT)]
            # If the filter keeps nobody, being dropped says nothing about a single client.
            offenders = record.having(Fate.DROPPED, Fate.REFUSED) if kept else record.having(Fate.REFUSED)
            bans = bans.after_round(self.ban, record.number, [client.client for client in offenders], kept)
        roster = self.memory.roster.after_round(record)
        self.memory = replace(self.memory, rounds=record.number, bans=bans, roster=roster, defense=defense.memory)
        before, nodes, stayed = self.arrays, self.nodes, new is None
        if new is not None:
            self.arrays = new.copy()  # a copy, since the caller may change its record
        # The audit trail is written before the memory. If the server is killed in between, a restart repeats the
        # round. So the trail may hold a round twice, but this way no round is missing from it.
        if head := self.audit.write(record, nodes, before, self.arrays):
            self.memory = replace(self.memory, audit_head=str(head))
        self.folder.save(self.memory, self.arrays)
        record = replace(record, stayed=stayed)
        self.recorder.tell(record, nodes, warn=warn or stayed)
        return MetricRecord(metrics_of(record, nodes, stayed=stayed))

    def completed(self, result: Result, arrays: ArrayRecord) -> Result:
        """Return a result with the round numbers of the whole federation, and with the details of each client.

        Flower counts rounds from 1 in each call of `start`. The details of a client are its node, what happened to
        it, its score and its probability of being malicious. Only the latest rounds get details. If no round has
        made a new model, the result gets the model `arrays`.
        """
        if not isinstance(result, Result):  # the user's strategy may override `start` and return anything
            return result
        if not result.arrays:
            result.arrays = arrays
        done = self.done_before
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {number + done: record for number, record in getattr(result, name).items()})
        for number, details in self.recorder.details.items():
            if number in result.train_metrics_clientapp:
                lists = {name: numbers.tolist() for name, numbers in details.items()}
                result.train_metrics_clientapp[number].update(lists)
        self.recorder.details.clear()
        return result
