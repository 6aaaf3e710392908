"""Functions that match the replies of a round with the clients that were asked, and check each reply.

A client whose reply cannot be used is left out of the round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from flwr.app import Array, ArrayRecord, Message
from flwr.common.constant import SUPERLINK_NODE_ID

from flanders.flower.identity import AskedClient
from flanders.flower.model_arrays import BadReply, LostReply, ModelArrays, Vector
from flanders.flower.reply_metrics import check_metrics
from flanders.flower.round_matrix import RoundMatrix
from flanders.flower.stored_arrays import LOST, LostArray
from flanders.hosts.claims import short
from flanders.hosts.unscored import far_clients, largest_difference
from flanders.record import ClientRecord, Fate
from flanders.round import ClientId, by_name

MOST_IGNORED = 5
"""The most ignored replies of a round that the log describes one by one. The others are only counted."""


@dataclass(frozen=True)
class Answer:
    """A reply, and the client that has sent it."""

    asked: AskedClient
    message: Message

    @property
    def client(self) -> ClientId:
        """The client that sent it."""
        return self.asked.client


@dataclass
class SortedReplies:
    """The replies of a round, matched with the clients that were asked, and what was found while checking them."""

    usable: dict[ClientId, Answer] = field(default_factory=dict)
    """The replies that no check has refused so far, by client."""
    failed: dict[ClientId, ClientRecord] = field(default_factory=dict)
    """The clients that did not reply, or whose replies were refused."""
    notes: list[str] = field(default_factory=list)
    """Anything unusual that happened, in words."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are."""
    alarms: list[str] = field(default_factory=list)
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
        """Record that a client's reply cannot be used. If the server has lost it, the client counts as silent."""
        self.refuse(client, str(why))
        if isinstance(why, LostReply):
            self.miss(client, str(why))

    def only(self, clients: Collection[ClientId]) -> int:
        """Leave out the replies of all clients that are not in `clients`. Return how many were left out."""
        before = len(self.usable)
        self.usable = {client: answer for client, answer in self.usable.items() if client in clients}
        return before - len(self.usable)

    def ignore(self, which: str) -> None:
        """Count a reply that belongs to no client that was asked, and note it if it is one of the first few.

        `which` describes the reply in words.
        """
        self.ignored += 1
        if self.ignored <= MOST_IGNORED:
            self.notes.append(f"ignored a reply {which}")

    def miss(self, client: ClientId, why: str) -> None:
        """Record that a client did not reply."""
        self.failed[client] = ClientRecord(client, Fate.SILENT, reason=why)


def checked_replies(
    replies: Iterable[Message], asked: Sequence[AskedClient], claims: Sequence[str], max_examples: float | None
) -> SortedReplies:
    """Match replies with the messages that they answer, and refuse replies whose metrics cannot be used.

    `claims` are the names of the metrics that the strategy needs. `max_examples` is the most examples that a client
    may claim.
    """
    found = sort_replies(replies, asked)
    for answer in found.answers:
        try:
            check_metrics(answer.message, claims, max_examples)
        except BadReply as why:
            found.refuse(answer.client, str(why))
    return found


def sort_replies(replies: Iterable[Message], asked: Sequence[AskedClient]) -> SortedReplies:
    """Match replies with the messages that they answer.

    A reply names the message that it answers. Flower adds the id of the node that the reply comes from. If that is
    not the node to which the message was sent, the reply is ignored, as if it had not arrived.
    """
    found = SortedReplies()
    sent = {one.message_id: one for one in asked if one.message_id}
    seen: set[ClientId] = set()
    for reply in replies:
        source = reply.metadata.src_node_id
        to = sent.get(reply.metadata.reply_to_message_id)
        if to is None:
            found.ignore(f"from node {source} that answers no message of this round")
            continue
        by_link = reply.has_error() and source == SUPERLINK_NODE_ID  # the SuperLink replies for dead nodes
        if source != to.node and not by_link:
            found.ignore(f"from node {source} that answers a message for node {to.node}")
            continue
        if to.client in seen:
            found.refuse(to.client, "more than one reply")
        elif reply.has_error():
            found.miss(to.client, f"error: {short(str(reply.error.reason)) or 'no reason given'}")
        else:
            found.usable[to.client] = Answer(to, reply)
        seen.add(to.client)
    for one in asked:
        if one.client not in seen:
            found.miss(one.client, "no reply")
    if found.ignored > MOST_IGNORED:
        found.notes.append(f"ignored {found.ignored} such replies in all")
    clients = list(found.usable)
    # Sorted, so that the rounding of sums does not depend on the order of arrival.
    in_order = [clients[i] for i in by_name(clients)]
    found.usable = {client: found.usable[client] for client in in_order}
    return found


def read_arrays(
    found: SortedReplies, model: ModelArrays, matrix: RoundMatrix, before: Mapping[str, Array]
) -> list[Answer]:
    """Enter the scored arrays of the replies into the rows of a matrix, and return the reply of each row.

    Replies whose arrays cannot be used are refused. `before` is the global model that the round started from.

    Each array is taken out of its reply while it is read, so that it is in memory only once. Afterwards the reply
    has all its arrays again, in the order and in the types of the server's model. Some strategies go by the order
    of the arrays and not by their names.
    """
    check_unscored(found, model, before)
    rows: list[Answer] = []
    for answer in found.answers:
        try:
            record = array_record(answer.message, model)
            matrix.prepare_row(len(rows))
            kept = {}
            for place in model.arrays:
                array = record.pop(place.name)
                if place.scored:
                    array = matrix.put(len(rows), place, cast("Vector", place.decode(array)), array)
                kept[place.name] = array
                del array
            for name, array in kept.items():
                record[name] = array
            rows.append(answer)
        except BadReply as why:
            found.reject(answer.client, why)
    return rows


def check_unscored(found: SortedReplies, model: ModelArrays, before: Mapping[str, Array]) -> None:
    """Refuse replies whose unscored arrays cannot be used, or have changed much more than is usual in the round.

    The filter does not look at unscored arrays, so they are checked here.
    """
    unseen = [place for place in model.arrays if not place.scored]
    starts = {place.name: before[place.name].numpy() for place in unseen}
    away: dict[ClientId, list[float]] = {}
    for answer in found.answers if unseen else ():
        try:
            record = array_record(answer.message, model)
            away[answer.client] = []
            for place in unseen:
                numbers = place.decode(record[place.name])
                place.check_variance(numbers, starts[place.name])
                record[place.name] = place.in_own_type(record[place.name], numbers)
                away[answer.client].append(largest_difference(numbers, starts[place.name]))
        except BadReply as why:
            away.pop(answer.client, None)
            found.reject(answer.client, why)
    for client, reason in far_clients(unseen, starts, away).items():
        found.refuse(client, reason)


def array_record(message: Message, model: ModelArrays) -> ArrayRecord:
    """Return the arrays of a reply. Raise `BadReply` if they are lost, or if their names are not the model's."""
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
    """Remove all arrays from replies, to free memory. Flower holds the replies until those of the next round."""
    for reply in replies:
        if reply.has_content():
            for record in reply.content.array_records.values():
                record.clear()
