"""Functions that check the metrics of replies, and give all replies of a round the same metrics.

A *claim* is a metric from which the strategy computes the weight of a reply, such as the number of examples. A
reply without a claim is refused. Any other metric may be missing. But Flower's strategies fail if not all replies
have the same metrics. So a metric that few replies have is left out of these, and any other is filled in where it
is missing.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy

from flanders.flower.model_arrays import LONGEST_NAME, BadReply
from flanders.hosts.claims import MOST_EXAMPLES

MOST_NUMBERS = 10_000
"""The most numbers in the metrics of one reply. More would make the server slow."""
COMMON = 0.1
"""A metric is left out if less than this share of the replies, or only one of several replies, have it."""
USUAL_NAMES: dict[type, str] = {ArrayRecord: "arrays", MetricRecord: "metrics"}
"""The names that the record of arrays and the record of metrics have in Flower's own examples."""

Metric = int | float | list[int] | list[float]
"""What Flower's `MetricRecord` can hold."""


def find_claims(strategy: Strategy) -> tuple[str, ...]:
    """Return the names of the metrics from which a strategy computes the weight of a reply.

    For most strategies it is one metric, the number of examples. `QFedAvg` has the training loss as a second one.
    If the strategy wraps another one, e.g. for differential privacy, the metrics of the inner strategy are
    returned. If none is found, the result is empty.
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
    amount = 0
    for metrics in records:
        for key, value in metrics.items():
            numbers = value if isinstance(value, list) else [value]
            amount += max(1, len(numbers))
            if amount > MOST_NUMBERS:
                raise BadReply(f"more than {MOST_NUMBERS:,} numbers in its metrics")
            if not all(map(_is_finite, numbers)):
                raise BadReply(f"metric {key[:LONGEST_NAME]!r} is not finite or too large")
    for place, key in enumerate(claims):
        found = records[0].get(key)
        if found is None:
            raise BadReply(f"metric {key!r} is missing")
        if isinstance(found, list) or found < 0 or (place == 0 and found == 0):
            raise BadReply(f"metric {key!r} is {found!r} instead of a positive number")
        most = MOST_EXAMPLES if place or max_examples is None else max_examples
        if found > most:
            raise BadReply(f"metric {key!r} is {found:g}, more than the {most:g} allowed")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # the int is too large for a float
        return False


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

    A metric that few replies have is left out. If a reply lacks any other metric, it gets the median of the replies
    that have it.
    """
    several = [_metric_records(message) for message in messages]
    if not several or any(len(records) != 1 for records in several):
        return []  # the strategy needs no metrics
    changed = _align_names(messages)
    metrics = [records[0] for records in several]
    forms = [_form(each) for each in metrics]
    if all(form == forms[0] for form in forms):
        return changed
    counts = Counter(pair for form in forms for pair in form.items())
    fewest = max(min(2, len(messages)), math.ceil(COMMON * len(messages)))
    chosen = {}
    for (key, length), count in sorted(counts.items(), key=lambda item: (item[0][1] < 0, item[1], item[0])):
        if count >= fewest:
            # A metric may have several lengths. The last one in this order is chosen: a single number if it is
            # among them, else the commonest length.
            chosen[key] = length
    pairs = list(zip(metrics, forms, strict=True))
    fills = {key: _median(m[key] for m, form in pairs if form.get(key) == chosen[key]) for key in sorted(chosen)}
    for each, form in pairs:
        new = {key: each[key] if form.get(key) == chosen[key] else fill for key, fill in fills.items()}
        each.clear()
        each.update(new)
    changed.append("not all replies have the same metrics: rare ones are left out, missing ones filled in")
    return changed


def _align_names(messages: Sequence[Message]) -> list[str]:
    """Give the records of all replies the same names, since strategies find records by their names.

    Records of a kind (arrays or metrics) are renamed only if every reply has exactly one record of this kind.
    """
    names = {kind: [_names(message, kind) for message in messages] for kind in USUAL_NAMES}
    names = {kind: found for kind, found in names.items() if all(len(each) == 1 for each in found)}
    if all(len({each[0] for each in found}) == 1 for found in names.values()):
        return []
    chosen = {}
    for kind, found in names.items():
        counts, usual = Counter(name for (name,) in found), USUAL_NAMES[kind]
        chosen[kind] = usual if usual in counts else max(counts, key=lambda name: (counts[name], name))
    if len(set(chosen.values())) < len(chosen):
        chosen = {kind: USUAL_NAMES[kind] for kind in chosen}
    for place, message in enumerate(messages):
        records = {kind: message.content.pop(found[place][0]) for kind, found in names.items()}
        for kind, record in records.items():
            message.content[chosen[kind]] = record
    return ["not all replies have records of the same names: all are renamed"]


def _names(message: Message, kind: type) -> list[str]:
    return [name for name, record in message.content.items() if isinstance(record, kind)]


def _metric_records(message: Message) -> list[MetricRecord]:
    """Return the metric records of a reply. Flower has a property for this, but it is slow."""
    return [record for record in message.content.values() if isinstance(record, MetricRecord)]


def _form(metrics: MetricRecord) -> dict[str, int]:
    """Return the length of each metric, by its name. The length of a single number counts as -1."""
    return {key: len(value) if isinstance(value, list) else -1 for key, value in metrics.items()}


def _median(values: Iterable[Metric]) -> Metric:
    several = list(values)
    if not isinstance(several[0], list):
        return statistics.median_low([value for value in several if not isinstance(value, list)])
    lists = [value for value in several if isinstance(value, list)]
    return [float(statistics.median_low(column)) for column in zip(*lists, strict=True)]
