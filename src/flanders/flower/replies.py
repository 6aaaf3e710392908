"""Replies, checked one by one: each is usable, or its sender loses the round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.common.constant import SUPERLINK_NODE_ID

from flanders.flower.identity import Asked
from flanders.flower.plan import NAME, BadReply, Plan
from flanders.flower.views import RoundView
from flanders.record import Fate
from flanders.round import ClientId, by_name

REASON = 120
"""Letters of what is wrong with a reply that are told at most."""
MOST_EXAMPLES = 2**53
"""Examples that a client may claim at most: sums of more than that are not exact."""


@dataclass(frozen=True)
class Answer:
    """The reply of a client that has sent just one."""

    asked: Asked
    message: Message

    @property
    def client(self) -> ClientId:
        """Who sent it."""
        return self.asked.client


@dataclass
class Sorted:
    """The replies of a round: who answered, who did not and why, and what was not asked for."""

    answers: list[Answer] = field(default_factory=list)
    failed: dict[ClientId, tuple[Fate, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def refuse(self, client: ClientId, why: str) -> None:
        """Note that a client's reply cannot be used."""
        self.failed[client] = (Fate.REFUSED, _short(why))
        self.answers = [answer for answer in self.answers if answer.client != client]


def sort_replies(replies: Iterable[Message], asked: Sequence[Asked]) -> Sorted:
    """Match replies with the messages they answer.

    A reply belongs to the client to which the message with the id that it answers was sent. Flower has its nodes'
    own ids on replies as well; one that disagrees is not that client's, so it must not cost that client the round.
    """
    found = Sorted()
    sent = {a.metadata.message_id: a for a in asked if a.metadata.message_id}
    seen: set[ClientId] = set()
    for reply in replies:
        source = reply.metadata.src_node_id
        to = sent.get(reply.metadata.reply_to_message_id)
        if to is None:
            found.notes.append(f"ignored a reply from node {source} to no message of this round")
            continue
        in_its_place = reply.has_error() and source == SUPERLINK_NODE_ID  # for a dead node the link replies
        if source != to.node and not in_its_place:
            found.notes.append(f"ignored a reply from node {source} to a message for node {to.node}")
            continue
        if to.client in seen:
            found.refuse(to.client, "more than one reply")
        elif reply.has_error():
            reason = _short(str(reply.error.reason)) or "no reason given"
            found.failed[to.client] = (Fate.SILENT, f"error: {reason}")
        else:
            found.answers.append(Answer(to, reply))
        seen.add(to.client)
    for client in (a.client for a in asked if a.client not in seen):
        found.failed[client] = (Fate.SILENT, "no reply")
    order = by_name([answer.client for answer in found.answers])
    found.answers = [found.answers[i] for i in order]  # sums come out the same, whoever was first
    return found


def check_metrics(found: Sorted, weight_key: str | None, max_examples: float | None) -> None:
    """Refuse replies whose metrics would break the wrapped strategy, or count for too much.

    Strategies need the same records with the same metrics from everyone: those of most replies are taken for right.
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
    return " ".join(text.split())[:REASON]


def _form(message: Message, weight_key: str | None, max_examples: float | None) -> tuple[object, ...]:
    """Return what must be the same in all replies, or complain."""
    records = message.content.metric_records
    if weight_key is not None and len(records) != 1:
        raise BadReply(f"{len(records)} MetricRecords instead of one")
    lengths = []
    for name, metrics in records.items():
        for key, value in metrics.items():
            lengths.append((name, key, len(value) if isinstance(value, list) else None))
            if not all(map(_is_finite, value if isinstance(value, list) else [value])):
                raise BadReply(f"metric {key[:NAME]!r} is not finite")
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
    except OverflowError:  # an int that no float can hold
        return False


def read_arrays(found: Sorted, plan: Plan, view: RoundView) -> list[Answer]:
    """Enter the usable replies' arrays into the rows of `view`, refuse the others, and return who is in which row.

    Arrays that the view keeps are taken out of the reply as they are read, so that they are in memory once. The
    reply is left with the same arrays in the server's order: some strategies go by the order, not by the names.
    """
    rows: list[Answer] = []
    for answer in list(found.answers):
        try:
            record = _array_record(answer.message, plan)
            view.begin(len(rows))
            kept = {}
            for piece in plan.pieces:
                array = record.pop(piece.name)
                numbers = piece.decode(array)
                kept[piece.name] = view.put(len(rows), piece, numbers, array) if piece.scored else array
                del array, numbers
            for name, array in kept.items():
                record[name] = array
            rows.append(answer)
        except BadReply as why:
            found.refuse(answer.client, str(why))
    return rows


def _array_record(message: Message, plan: Plan) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise BadReply(f"{len(records)} ArrayRecords instead of one")
    if difference := plan.difference_of_names(records[0]):
        raise BadReply(f"arrays with other names: {difference}")
    return records[0]


def empty(replies: Iterable[Message]) -> None:
    """Take all arrays out of replies: Flower keeps those of a round until the next one's have come."""
    for reply in replies:
        if reply.has_content():
            for record in reply.content.array_records.values():
                record.clear()


def find_weight_key(strategy: Any) -> str | None:
    """Return the metric by which a strategy weighs replies, if it says so; privacy wrappers have it inside."""
    while strategy is not None and not hasattr(strategy, "weighted_by_key"):
        strategy = getattr(strategy, "strategy", None)
    return None if strategy is None else strategy.weighted_by_key


def weight_of(message: Message, weight_key: str | None) -> float:
    """Return how much a checked reply counts."""
    if weight_key is None:
        return 1.0
    weight: Any = next(iter(message.content.metric_records.values()))[weight_key]
    return float(weight)
