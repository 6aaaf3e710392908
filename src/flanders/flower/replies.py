"""The replies of a round, checked one by one. A client whose reply cannot be used is left out of the round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from flwr.app import ArrayRecord, Message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp.strategy import Strategy

from flanders.flower.identity import AskedClient
from flanders.flower.model_arrays import LONGEST_NAME, BadReply, ModelArrays, Vector
from flanders.flower.round_matrix import RoundMatrix
from flanders.record import ClientRecord, Fate
from flanders.round import ClientId, by_name

LONGEST_REASON = 120
"""The most characters of a reason that are shown. Part of it may come from a client."""
MOST_EXAMPLES = 2**53
"""The most examples that a client may claim. Floats do not represent all larger integers."""


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

    answers: list[Answer] = field(default_factory=list)
    """The replies that can be used so far."""
    failed: dict[ClientId, ClientRecord] = field(default_factory=dict)
    """The clients that did not reply, or whose replies cannot be used."""
    notes: list[str] = field(default_factory=list)
    """Anything unusual that happened, in words."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are."""

    def refuse(self, client: ClientId, why: str) -> None:
        """Record that a client's reply cannot be used."""
        self.failed[client] = ClientRecord(client, Fate.REFUSED, reason=_short(why))
        self.answers = [answer for answer in self.answers if answer.client != client]

    def miss(self, client: ClientId, why: str) -> None:
        """Record that a client did not reply."""
        self.failed[client] = ClientRecord(client, Fate.SILENT, reason=why)


def checked_replies(
    replies: Iterable[Message], asked: Sequence[AskedClient], weight_key: str | None, max_examples: float | None
) -> SortedReplies:
    """Match replies with the messages that they answer, and refuse those whose metrics cannot be used."""
    found = sort_replies(replies, asked)
    check_metrics(found, weight_key, max_examples)
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
            found.notes.append(f"ignored a reply from node {source} to no message of this round")
            continue
        by_link = reply.has_error() and source == SUPERLINK_NODE_ID  # the SuperLink replies for a dead node
        if source != to.node and not by_link:
            found.notes.append(f"ignored a reply from node {source} to a message for node {to.node}")
            continue
        if to.client in seen:
            found.refuse(to.client, "more than one reply")
        elif reply.has_error():
            found.miss(to.client, f"error: {_short(str(reply.error.reason)) or 'no reason given'}")
        else:
            found.answers.append(Answer(to, reply))
        seen.add(to.client)
    for one in asked:
        if one.client not in seen:
            found.miss(one.client, "no reply")
    order = by_name([answer.client for answer in found.answers])
    found.answers = [found.answers[i] for i in order]  # so that sums do not depend on the order of arrival
    return found


def check_metrics(found: SortedReplies, weight_key: str | None, max_examples: float | None) -> None:
    """Refuse replies whose metrics would break the wrapped strategy, or would count for too much.

    Strategies need the same records with the same metrics from every client. The records and metrics of most
    replies count as right.
    """
    forms: dict[ClientId, tuple[object, ...]] = {}
    for answer in list(found.answers):
        try:
            forms[answer.client] = _form(answer.message, weight_key, max_examples)
        except BadReply as why:
            found.refuse(answer.client, str(why))
    if not forms:
        return
    counts = Counter(forms.values())
    usual = max(counts, key=lambda form: (counts[form], repr(form)))
    for client, form in forms.items():
        if form != usual:
            found.refuse(client, "its records or metrics have other names than those of most replies")


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST_REASON]


def _form(message: Message, weight_key: str | None, max_examples: float | None) -> tuple[object, ...]:
    """Return what must be the same in all replies, or raise `BadReply` if the metrics cannot be used."""
    records = message.content.metric_records
    if weight_key is not None and len(records) != 1:
        raise BadReply(f"{len(records)} MetricRecords instead of one")
    lengths = []
    for name, metrics in records.items():
        for key, value in metrics.items():
            lengths.append((name, key, len(value) if isinstance(value, list) else None))
            if not all(map(_is_finite, value if isinstance(value, list) else [value])):
                raise BadReply(f"metric {key[:LONGEST_NAME]!r} is not finite")
    if weight_key is not None:
        weight = next(iter(records.values())).get(weight_key)
        most = MOST_EXAMPLES if max_examples is None else max_examples
        if weight is None:
            raise BadReply(f"metric {weight_key!r} is missing")
        if isinstance(weight, list) or weight <= 0:
            raise BadReply(f"metric {weight_key!r} is {weight!r} instead of a positive number")
        if weight > most:
            raise BadReply(f"metric {weight_key!r} is {weight:g}, more than the {most:g} allowed")
    return tuple(message.content.array_records), tuple(sorted(lengths, key=repr))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # the int is too large for a float
        return False


def read_arrays(found: SortedReplies, model: ModelArrays, matrix: RoundMatrix) -> list[Answer]:
    """Enter the usable replies into the rows of a matrix, refuse the others, and return the reply of each row.

    An array that the matrix stores is taken out of the reply while it is read, so that it is in memory only once.
    Afterwards the reply has the same arrays in the server's order: some strategies use the order, not the names.
    """
    rows: list[Answer] = []
    for answer in list(found.answers):
        try:
            record = _array_record(answer.message, model)
            matrix.prepare_row(len(rows))
            kept = {}
            for place in model.arrays:
                array = record.pop(place.name)
                numbers = place.decode(array)
                if place.scored:
                    array = matrix.put(len(rows), place, cast("Vector", numbers), array)
                kept[place.name] = array
                del array, numbers
            for name, array in kept.items():
                record[name] = array
            rows.append(answer)
        except BadReply as why:
            found.refuse(answer.client, str(why))
    return rows


def _array_record(message: Message, model: ModelArrays) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise BadReply(f"{len(records)} ArrayRecords instead of one")
    if difference := model.difference_of_names(records[0]):
        raise BadReply(f"arrays with other names: {difference}")
    return records[0]


def discard_arrays(replies: Iterable[Message]) -> None:
    """Take all arrays out of replies. Flower keeps the replies of a round until those of the next have arrived."""
    for reply in replies:
        if reply.has_content():
            for record in reply.content.array_records.values():
                record.clear()


def find_weight_key(strategy: Strategy) -> str | None:
    """Return the metric by which a strategy weighs replies; None if it has none.

    Wrappers, such as those for privacy, have it in the strategy that they wrap.
    """
    inner: object = strategy
    while inner is not None:
        if hasattr(inner, "weighted_by_key"):
            key: str | None = inner.weighted_by_key
            return key
        inner = getattr(inner, "strategy", None)
    return None


def weight_of(message: Message, weight_key: str | None) -> float:
    """Return how much a checked reply counts."""
    if weight_key is None:
        return 1.0
    weight = next(iter(message.content.metric_records.values()))[weight_key]
    if isinstance(weight, list):
        raise BadReply(f"metric {weight_key!r} is a list instead of a number")
    return float(weight)
