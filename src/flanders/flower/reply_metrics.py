"""Functions that check the metrics of replies, and give all replies of a round the same metrics.

A *claim* is a metric from which the strategy computes the weight of a reply, such as the number of examples. A
reply without a claim is refused. Metrics that are not claims may be missing. But Flower's strategies fail if the
replies have different metrics. So a rare metric, which only few replies have, is removed. A metric that is not rare
is filled in where it is missing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from flanders.hosts.claimed_weights import MOST_EXAMPLES, is_finite_number
from flanders.hosts.model_arrays import LONGEST_NAME, BadReply

MOST_NUMBERS = 10_000
"""The most numbers in the metrics of one reply. More would make the server slow."""
COMMON = 0.1
"""A metric is removed if less than this share of the replies have it, or if only one of several replies has it.
Without this limit, a few clients could add metrics to all replies."""
USUAL_NAMES: dict[type, str] = {ArrayRecord: "arrays", MetricRecord: "metrics"}
"""The names that the record of arrays and the record of metrics have in Flower's own examples."""

Metric = int | float | list[int] | list[float]
"""What Flower's `MetricRecord` can hold."""


def find_claims(strategy: Strategy) -> tuple[str, ...]:
    """Return the names of the metrics from which a strategy computes the weight of a reply.

    Most strategies have one such metric, the number of examples. `QFedAvg` also has the training loss. If the
    strategy wraps another one, e.g. for differential privacy, the metrics of the inner strategy are returned. If
    there are no such metrics, the result is empty.
    """
    inner: object = strategy
    while inner is not None:
        if hasattr(inner, "weighted_by_key"):
            keys = (inner.weighted_by_key, getattr(inner, "train_loss_key", None))
            return tuple(key for key in keys if isinstance(key, str))
        inner = getattr(inner, "strategy", None)
    return ()


def check_metrics(message: Message, claims: Sequence[str], max_examples: float | None) -> None:
    """Raise `BadReply` if the strategy could not use the metrics of a reply, or if a claim is too large."""
    records = _metric_records(message)
    if claims and len(records) != 1:
        raise BadReply(f"{len(records)} MetricRecords instead of one")
    count = 0
    for metrics in records:
        for key, value in metrics.items():
            numbers = value if isinstance(value, list) else [value]
            count += max(1, len(numbers))
            if count > MOST_NUMBERS:
                raise BadReply(f"more than {MOST_NUMBERS:,} numbers in its metrics")
            if not all(map(is_finite_number, numbers)):
                raise BadReply(f"metric {key[:LONGEST_NAME]!r} is not finite or too large")
    for position, key in enumerate(claims):  # the first claim is the number of examples
        claim = records[0].get(key)
        if claim is None:
            raise BadReply(f"metric {key!r} is missing")
        if isinstance(claim, list) or claim < 0 or (position == 0 and claim == 0):
            raise BadReply(f"metric {key!r} is {claim!r} instead of a positive number")
        most = MOST_EXAMPLES if position or max_examples is None else max_examples
        if claim > most:
            raise BadReply(f"metric {key!r} is {claim:g}, more than the {most:g} allowed")


def claim_of(message: Message, key: str) -> float:
    """Return the claim `key` of a checked reply."""
    claim = _metric_records(message)[0][key]
    if isinstance(claim, list):
        raise BadReply(f"metric {key!r} is a list instead of a number")
    return float(claim)


def set_claim(message: Message, key: str, value: float) -> None:
    """Set the claim `key` of a reply to another value."""
    _metric_records(message)[0][key] = value


def align_records(messages: Sequence[Message]) -> list[str]:
    """Give checked replies the same metrics, in records of the same names. Return in words what was changed.

    A metric that few replies have is removed. If a reply lacks one of the remaining metrics, it gets the median of
    this metric over the other replies. A metric may be a list. If the lists of different replies have different
    lengths, one length is chosen, and lists of other lengths count as missing.
    """
    records_of_replies = [_metric_records(message) for message in messages]
    if not records_of_replies or any(len(records) != 1 for records in records_of_replies):
        return []  # the strategy needs no metrics
    changes = _align_names(messages)
    all_metrics = [records[0] for records in records_of_replies]
    all_lengths = [_lengths(metrics) for metrics in all_metrics]
    if all(lengths == all_lengths[0] for lengths in all_lengths):
        return changes
    counts = Counter(pair for lengths in all_lengths for pair in lengths.items())
    fewest = max(min(2, len(messages)), math.ceil(COMMON * len(messages)))
    chosen = {}
    for (key, length), count in sorted(counts.items(), key=lambda item: (item[0][1] < 0, item[1], item[0])):
        if count >= fewest:
            # A metric may have different lengths in different replies. The loop goes through them in this order:
            # rare lengths, common lengths, and -1, which stands for a single number. The last one is chosen.
            chosen[key] = length
    pairs = list(zip(all_metrics, all_lengths, strict=True))
    medians = {
        key: _median(metrics[key] for metrics, lengths in pairs if lengths.get(key) == chosen[key])
        for key in sorted(chosen)
    }
    for metrics, lengths in pairs:
        new = {key: metrics[key] if lengths.get(key) == chosen[key] else medians[key] for key in medians}
        metrics.clear()
        metrics.update(new)
    changes.append("not all replies have the same metrics: rare metrics are removed, missing ones are filled in")
    return changes


def _align_names(messages: Sequence[Message]) -> list[str]:
    """Give the records of all replies the same names, since strategies find records by their names.

    Records of a kind (arrays or metrics) are renamed only if every reply has exactly one record of this kind.
    """
    lists = {kind: [_names(message, kind) for message in messages] for kind in USUAL_NAMES}
    names = {kind: [name for (name,) in some] for kind, some in lists.items() if all(len(own) == 1 for own in some)}
    if all(len(set(names_of_kind)) == 1 for names_of_kind in names.values()):
        return []
    chosen = {}
    for kind, names_of_kind in names.items():
        counts, usual = Counter(names_of_kind), USUAL_NAMES[kind]
        chosen[kind] = usual if usual in counts else max(counts, key=lambda name: (counts[name], name))
    if len(set(chosen.values())) < len(chosen):
        chosen = {kind: USUAL_NAMES[kind] for kind in chosen}
    for position, message in enumerate(messages):
        records = {kind: message.content.pop(names_of_kind[position]) for kind, names_of_kind in names.items()}
        for kind, record in records.items():
            message.content[chosen[kind]] = record
    return ["not all replies have records of the same names: all records are renamed"]


def _names(message: Message, kind: type) -> list[str]:
    return [name for name, record in message.content.items() if isinstance(record, kind)]


def _metric_records(message: Message) -> list[MetricRecord]:
    """Return the metric records of a reply. Flower has a property for this, but it is slow."""
    return [record for record in message.content.values() if isinstance(record, MetricRecord)]


def _lengths(metrics: MetricRecord) -> dict[str, int]:
    """Return the length of each metric, by its name. The length of a single number counts as -1."""
    return {key: len(value) if isinstance(value, list) else -1 for key, value in metrics.items()}


def _median(values: Iterable[Metric]) -> Metric:
    """Return the median of numbers. For lists of the same length, return a list: the median at each position."""
    same_length = list(values)
    if not isinstance(same_length[0], list):
        return statistics.median_low([value for value in same_length if not isinstance(value, list)])
    lists = [value for value in same_length if isinstance(value, list)]
    return [float(statistics.median_low(column)) for column in zip(*lists, strict=True)]
