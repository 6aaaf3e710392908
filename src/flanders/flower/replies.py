"""Functions that match the replies of a round with the clients that were asked, and check each reply.

A client whose reply cannot be used is left out of the round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from flwr.app import Array, ArrayRecord, Message
from flwr.common.constant import SUPERLINK_NODE_ID

from flanders.client_ids import ClientId, by_name
from flanders.flower.identity import AskedClient
from flanders.flower.model_arrays import LostReply, ModelArrays
from flanders.flower.reply_metrics import check_metrics
from flanders.flower.round_matrix import RoundMatrix
from flanders.flower.stored_arrays import LOST, LostArray
from flanders.hosts.claimed_weights import short
from flanders.hosts.model_arrays import BadReply, Vector
from flanders.hosts.unscored import far_clients, largest_difference
from flanders.record import ClientRecord, Fate

MOST_IGNORED = 5
"""The log describes at most this many ignored replies of a round. Further ignored replies are only counted."""


@dataclass(frozen=True)
class Answer:
    """A reply, and the client that has sent it."""

    asked: AskedClient
    """The client."""
    message: Message
    """The reply."""

    @property
    def client(self) -> ClientId:
        """The name of the client."""
        return self.asked.client


@dataclass
class SortedReplies:
    """The replies of a round, matched with the clients that were asked, and the results of the checks."""

    usable: dict[ClientId, Answer] = field(default_factory=dict)
    """The replies that no check has refused so far, by client."""
    failed: dict[ClientId, ClientRecord] = field(default_factory=dict)
    """The clients that did not reply, or whose replies were refused."""
    notes: list[str] = field(default_factory=list)
    """Anything unusual that happened, in words."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are in this round; see `RoundRecord.widening`."""
    warnings: list[str] = field(default_factory=list)
    """What the user should look at, in words."""
    ignored: int = 0
    """The number of replies that answer no message of this round, or that answer a message to another node."""

    @property
    def answers(self) -> list[Answer]:
        """The replies that no check has refused so far."""
        return list(self.usable.values())

    def refuse(self, client: ClientId, why: str) -> None:
        """Record that a client's reply cannot be used. `why` is the reason in words."""
        self.failed[client] = ClientRecord(client, Fate.REFUSED, reason=short(why))
        self.usable.pop(client, None)

    def reject(self, client: ClientId, why: BadReply) -> None:
        """Record that the arrays of a reply cannot be used, or that the server has lost them."""
        self.refuse(client, str(why))
        if isinstance(why, LostReply):
            self.miss(client, str(why))

    def only(self, clients: Collection[ClientId]) -> int:
        """Leave out the replies of all clients that are not in `clients`. Return how many were left out."""
        before = len(self.usable)
        self.usable = {client: answer for client, answer in self.usable.items() if client in clients}
        return before - len(self.usable)

    def ignore(self, which: str) -> None:
        """Count a reply that is ignored. The first few ignored replies also get a note.

        `which` describes the reply in words.
        """
        self.ignored += 1
        if self.ignored <= MOST_IGNORED:
            self.notes.append(f"ignored a reply {which}")

    def miss(self, client: ClientId, why: str) -> None:
        """Record that a client has not replied. `why` is the reason in words.

        An error message of the client, or a reply that the server has lost, counts as no reply.
        """
        self.failed[client] = ClientRecord(client, Fate.SILENT, reason=why)


def checked_replies(
    replies: Iterable[Message], asked: Sequence[AskedClient], claims: Sequence[str], max_examples: float | None
) -> SortedReplies:
    """Match replies with the messages that they answer, and refuse replies whose metrics cannot be used.

    `claims` are the names of the metrics that the strategy needs. `max_examples` is the most examples that a client
    may claim.
    """
    sorted_replies = sort_replies(replies, asked)
    for answer in sorted_replies.answers:
        try:
            check_metrics(answer.message, claims, max_examples)
        except BadReply as why:
            sorted_replies.refuse(answer.client, str(why))
    return sorted_replies


def sort_replies(replies: Iterable[Message], asked: Sequence[AskedClient]) -> SortedReplies:
    """Match replies with the messages that they answer.

    A reply names the message that it answers. Flower adds the id of the node that the reply comes from. If that is
    not the node to which the message was sent, the reply is ignored, as if it had not arrived.
    """
    sorted_replies = SortedReplies()
    receivers = {receiver.message_id: receiver for receiver in asked if receiver.message_id}
    seen: set[ClientId] = set()
    for reply in replies:
        source = reply.metadata.src_node_id
        receiver = receivers.get(reply.metadata.reply_to_message_id)
        if receiver is None:
            sorted_replies.ignore(f"from node {source} that answers no message of this round")
            continue
        by_link = reply.has_error() and source == SUPERLINK_NODE_ID  # the SuperLink replies for dead nodes
        if source != receiver.node and not by_link:
            sorted_replies.ignore(f"from node {source} that answers a message for node {receiver.node}")
            continue
        if receiver.client in seen:
            sorted_replies.refuse(receiver.client, "more than one reply")
        elif reply.has_error():
            sorted_replies.miss(receiver.client, f"error: {short(str(reply.error.reason)) or 'no reason given'}")
        else:
            sorted_replies.usable[receiver.client] = Answer(receiver, reply)
        seen.add(receiver.client)
    for silent in asked:
        if silent.client not in seen:
            sorted_replies.miss(silent.client, "no reply")
    if sorted_replies.ignored > MOST_IGNORED:
        sorted_replies.notes.append(f"ignored {sorted_replies.ignored} such replies in all")
    clients = list(sorted_replies.usable)
    # Replies are sorted, so that the rounding of sums does not depend on the order in which they arrive.
    in_order = [clients[i] for i in by_name(clients)]
    sorted_replies.usable = {client: sorted_replies.usable[client] for client in in_order}
    return sorted_replies


def read_arrays(
    sorted_replies: SortedReplies, model: ModelArrays, matrix: RoundMatrix, before: Mapping[str, Array]
) -> list[Answer]:
    """Write each reply into a row of the matrix that the filter sees, and return the reply of each row.

    A row holds the scored arrays of a reply: those that the filter looks at. Replies whose arrays cannot be used
    are refused, and get no row. `before` is the global model that the round started from.

    Each array is taken out of its reply while it is read, so that it is in memory only once. Afterwards the reply
    has all its arrays again, in the types and in the order of the server's model. The order matters, since some
    strategies find arrays by their order and not by their names.
    """
    check_unscored(sorted_replies, model, before)
    rows: list[Answer] = []
    for answer in sorted_replies.answers:
        try:
            record = array_record(answer.message, model)
            matrix.prepare_row(len(rows))
            arrays = {}
            for place in model.arrays:
                array = record.pop(place.name)
                if place.scored:
                    array = matrix.put(len(rows), place, cast("Vector", place.decode(array)), array)
                arrays[place.name] = array
                del array
            for name, array in arrays.items():
                record[name] = array
            rows.append(answer)
        except BadReply as why:
            sorted_replies.reject(answer.client, why)
    return rows


def check_unscored(sorted_replies: SortedReplies, model: ModelArrays, before: Mapping[str, Array]) -> None:
    """Refuse replies whose unscored arrays cannot be used, or have changed much more than is usual in the round.

    The filter does not look at unscored arrays, so they are checked here.
    """
    unscored = [place for place in model.arrays if not place.scored]
    starts = {place.name: before[place.name].numpy() for place in unscored}
    changes: dict[ClientId, list[float]] = {}
    for answer in sorted_replies.answers if unscored else ():
        try:
            record = array_record(answer.message, model)
            changes[answer.client] = []
            for place in unscored:
                numbers = place.decode(record[place.name])
                place.check_variance(numbers, starts[place.name])
                record[place.name] = place.in_own_type(record[place.name], numbers)
                changes[answer.client].append(largest_difference(numbers, starts[place.name]))
        except BadReply as why:
            changes.pop(answer.client, None)
            sorted_replies.reject(answer.client, why)
    for client, reason in far_clients(unscored, starts, changes).items():
        sorted_replies.refuse(client, reason)


def array_record(message: Message, model: ModelArrays) -> ArrayRecord:
    """Return the arrays of a reply. Raise `BadReply` if the server did not store them, or if a name is wrong."""
    records = [record for record in message.content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise BadReply(f"{len(records)} ArrayRecords instead of one")
    lost = records[0].get(LOST)
    if isinstance(lost, LostArray):
        raise (BadReply if lost.too_large else LostReply)(lost.why)
    if difference := model.difference_of_names(records[0]):
        raise BadReply(f"arrays with other names: {difference}")
    return records[0]


def discard_arrays(replies: Iterable[Message]) -> None:
    """Remove all arrays from replies, to free memory. Flower holds the replies until the next replies arrive."""
    for reply in replies:
        if reply.has_content():
            for record in reply.content.array_records.values():
                record.clear()
