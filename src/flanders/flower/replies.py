"""The replies of a round, checked one by one. A client whose reply cannot be used is left out of the round."""

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
from flanders.hosts.unscored import far_clients, largest_difference
from flanders.record import ClientRecord, Fate
from flanders.round import ClientId, by_name

LONGEST_REASON = 120
"""The most characters of a reason that are shown. Part of it may come from a client."""
MOST_IGNORED = 5
"""The most ignored replies of a round that are described one by one."""


@dataclass(frozen=True)
class Answer:
    """The reply of a client that has sent exactly one."""

    asked: AskedClient
    message: Message

    @property
    def client(self) -> ClientId:
        """The client that sent it."""
        return self.asked.client


@dataclass
class SortedReplies:
    """The replies of a round, matched with the clients that were asked."""

    usable: dict[ClientId, Answer] = field(default_factory=dict)
    """The replies that can be used so far, by client."""
    failed: dict[ClientId, ClientRecord] = field(default_factory=dict)
    """The clients that did not reply, or whose replies cannot be used."""
    notes: list[str] = field(default_factory=list)
    """Anything unusual that happened, in words."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are."""
    alarms: list[str] = field(default_factory=list)
    """What the user should look at, in words."""
    ignored: int = 0
    """How many replies were nobody's."""

    @property
    def answers(self) -> list[Answer]:
        """The replies that can be used so far."""
        return list(self.usable.values())

    def refuse(self, client: ClientId, why: str) -> None:
        """Record that a client's reply cannot be used."""
        self.failed[client] = ClientRecord(client, Fate.REFUSED, reason=_short(why))
        self.usable.pop(client, None)

    def reject(self, client: ClientId, why: BadReply) -> None:
        """Record that a client's reply cannot be used, or that the server has lost it."""
        self.refuse(client, str(why))
        if isinstance(why, LostReply):
            self.miss(client, str(why))

    def only(self, clients: Collection[ClientId]) -> int:
        """Leave out the replies of all other clients, and return how many there were."""
        before = len(self.usable)
        self.usable = {client: answer for client, answer in self.usable.items() if client in clients}
        return before - len(self.usable)

    def ignore(self, which: str) -> None:
        """Record that a reply is nobody's. Only the first ones are described."""
        self.ignored += 1
        if self.ignored <= MOST_IGNORED:
            self.notes.append(f"ignored a reply {which}")

    def miss(self, client: ClientId, why: str) -> None:
        """Record that a client did not reply."""
        self.failed[client] = ClientRecord(client, Fate.SILENT, reason=why)


def checked_replies(
    replies: Iterable[Message], asked: Sequence[AskedClient], claims: Sequence[str], max_examples: float | None
) -> SortedReplies:
    """Match replies with the messages that they answer, and refuse those whose metrics cannot be used.

    `claims` are the metrics that the strategy needs.
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

    A reply names the message that it answers, and belongs to the client that this message was sent to. Flower also
    stamps each reply with the id of the node that sent it. If the two disagree, the reply is ignored. The
    client that was asked can still reply.
    """
    found = SortedReplies()
    sent = {one.message_id: one for one in asked if one.message_id}
    seen: set[ClientId] = set()
    for reply in replies:
        source = reply.metadata.src_node_id
        to = sent.get(reply.metadata.reply_to_message_id)
        if to is None:
            found.ignore(f"from node {source} to no message of this round")
            continue
        by_link = reply.has_error() and source == SUPERLINK_NODE_ID  # the SuperLink replies for a dead node
        if source != to.node and not by_link:
            found.ignore(f"from node {source} to a message for node {to.node}")
            continue
        if to.client in seen:
            found.refuse(to.client, "more than one reply")
        elif reply.has_error():
            found.miss(to.client, f"error: {_short(str(reply.error.reason)) or 'no reason given'}")
        else:
            found.usable[to.client] = Answer(to, reply)
        seen.add(to.client)
    for one in asked:
        if one.client not in seen:
            found.miss(one.client, "no reply")
    if found.ignored > MOST_IGNORED:
        found.notes.append(f"ignored {found.ignored} such replies in all")
    clients = list(found.usable)
    in_order = [clients[i] for i in by_name(clients)]  # so that sums do not depend on the order of arrival
    found.usable = {client: found.usable[client] for client in in_order}
    return found


def _short(text: str) -> str:
    """Return the beginning of a text on one line. A client may send anything, such as the codes of a terminal."""
    line = " ".join(text[: 2 * LONGEST_REASON].split())[:LONGEST_REASON]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def read_arrays(
    found: SortedReplies, model: ModelArrays, matrix: RoundMatrix, before: Mapping[str, Array]
) -> list[Answer]:
    """Enter the usable replies into the rows of a matrix, refuse the others, and return the reply of each row.

    `before` is the global model that the round started from. An array that the matrix stores is taken out of the
    reply while it is read, so that it is in memory only once. Afterwards the reply has the same arrays in the
    server's order, in its types: some strategies use the order, not the names.
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
    """Refuse replies with arrays that the filter does not see, if these cannot be used or are far off."""
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
    """Return the arrays of a reply, or raise `BadReply` if they have other names than the model's."""
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
    """Take all arrays out of replies. Flower keeps the replies of a round until those of the next have arrived."""
    for reply in replies:
        if reply.has_content():
            for record in reply.content.array_records.values():
                record.clear()
