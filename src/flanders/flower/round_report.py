"""Functions that turn the record of a round into metrics for Flower's `Result`, and a filter into one line."""

from __future__ import annotations

import dataclasses
import inspect
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from flanders.filters import Filter
from flanders.flower.identity import AskedClient
from flanders.record import Fate, RoundRecord
from flanders.round import ClientId

PREFIX = "flanders-"
"""The names of the metrics begin with this."""
FATE_NUMBERS = {Fate.KEPT: 0, Fate.DROPPED: 1, Fate.REFUSED: 2, Fate.SILENT: 3, Fate.BANNED: 4}
"""The number that stands for each fate, since metrics can only be numbers."""
NAMES = {str(name): f"{PREFIX}{name}" for name in (*FATE_NUMBERS, "stayed", "threshold", "unused-nodes")}
"""The names of the metrics. Flower holds the metrics of every round in memory. With this table, all rounds share
the same strings."""

Details = dict[str, "array[int] | array[float]"]
"""The nodes, fates, scores and probabilities of the clients of a round, by the name of the metric."""
Metric = int | float | list[int] | list[float]
"""A value in Flower's `MetricRecord`."""
Nodes = Mapping[ClientId, AskedClient]
"""The clients of a round with their nodes, by name."""


def filter_line(filter: Filter[Any]) -> str:
    """Return a filter in one line: its class, the parameters that differ from the defaults, and what it does.

    Examples
    --------
    >>> from flanders.filters import DistanceToGlobal
    >>> filter_line(DistanceToGlobal(keep=3))
    'DistanceToGlobal(keep=3): keep the clients whose models moved least from the global model: ...'
    """
    kind = type(filter)
    chosen = []
    fields: Sequence[dataclasses.Field[Any]] = (
        dataclasses.fields(filter) if dataclasses.is_dataclass(filter) else ()
    )
    for field in fields:
        made: object = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if (value := getattr(filter, field.name)) != made:
            chosen.append(f"{field.name}={value!r}")
    text = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ").removesuffix(".")
    words = f": {text[0].lower()}{text[1:]}" if text and text[:2] != f"{kind.__name__}(" else ""
    return f"{kind.__name__}({', '.join(chosen)}){words}"


def metrics_of(record: RoundRecord, nodes: Nodes, *, stayed: bool) -> dict[str, Metric]:
    """Return the metrics of a round.

    These are the number of clients with each fate, whether the global model `stayed` as it was, the largest score
    of a kept client, and the ids of the nodes whose replies were dropped or refused.
    """
    unused = record.having(Fate.DROPPED, Fate.REFUSED)
    return {
        **{NAMES[fate]: len(record.having(fate)) for fate in FATE_NUMBERS},
        NAMES["stayed"]: int(stayed),
        NAMES["threshold"]: record.threshold,
        NAMES["unused-nodes"]: [nodes[client.client].node for client in unused],
    }


def details_of(record: RoundRecord, nodes: Nodes) -> Details:
    """Return the details of each client: its node, its fate, its score, and the probability that it is malicious.

    They are arrays with a number per client, since arrays take a fifth of the memory of lists.
    """
    return {
        f"{PREFIX}nodes": array("Q", [nodes[client.client].node for client in record.clients]),
        f"{PREFIX}fates": array("b", [FATE_NUMBERS[client.fate] for client in record.clients]),
        f"{PREFIX}scores": array("d", [client.score for client in record.clients]),
        f"{PREFIX}probabilities": array("d", [client.probability for client in record.clients]),
    }
