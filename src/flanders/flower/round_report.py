"""Functions that turn the record of a round into metrics for Flower's `Result`, and describe a filter in one line.

The *fate* of a client says what happened to it in a round, e.g. that the filter kept or dropped its reply.
"""

from __future__ import annotations

import dataclasses
import inspect
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from flanders.client_ids import ClientId
from flanders.filters import Filter
from flanders.flower.identity import AskedClient
from flanders.flower.reply_metrics import Metric
from flanders.record import Fate, RoundRecord

PREFIX = "flanders-"
"""The names of the metrics begin with this."""
FATE_NUMBERS = {Fate.KEPT: 0, Fate.DROPPED: 1, Fate.REFUSED: 2, Fate.SILENT: 3, Fate.BANNED: 4}
"""The number that stands for each fate. Flower's metrics can only be numbers."""
NAMES = {str(name): f"{PREFIX}{name}" for name in (*FATE_NUMBERS, "stayed", "threshold", "unused-nodes")}
"""The names of the metrics. Flower holds the metrics of every round in memory. With this table, all rounds share
the same strings."""

Details = dict[str, "array[int] | array[float]"]
"""What `details_of` returns: arrays with a number per client, by the name of the metric."""
Nodes = Mapping[ClientId, AskedClient]
"""The clients of a round and their nodes, by the name of the client."""


def filter_line(filter: Filter[Any]) -> str:
    """Describe a filter in one line: its class, the parameters that differ from the defaults, and what it does.

    The last part is the first paragraph of the filter's docstring.

    Examples
    --------
    >>> from flanders.filters import DistanceToGlobal
    >>> filter_line(DistanceToGlobal(keep=3))
    'DistanceToGlobal(keep=3): keep the clients whose models moved least from the global model: ...'
    """
    kind = type(filter)
    parameters = []
    fields: Sequence[dataclasses.Field[Any]] = (
        dataclasses.fields(filter) if dataclasses.is_dataclass(filter) else ()
    )
    for field in fields:
        factory = field.default_factory
        default: object = field.default if factory is dataclasses.MISSING else factory()
        if (value := getattr(filter, field.name)) != default:
            parameters.append(f"{field.name}={value!r}")
    text = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ").removesuffix(".")
    generated = text.startswith(f"{kind.__name__}(")  # a dataclass without a docstring gets one from Python
    words = f": {text[0].lower()}{text[1:]}" if text and not generated else ""
    return f"{kind.__name__}({', '.join(parameters)}){words}"


def metrics_of(record: RoundRecord, nodes: Nodes, *, stayed: bool) -> dict[str, Metric]:
    """Return the metrics of a round.

    They are the number of clients with each fate, the largest score of a kept client (`threshold`), and the ids of
    the nodes whose replies were dropped or refused. The metric `stayed` is 1 if the global model has stayed as it
    was, else 0.
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

    The details are arrays and not lists, since arrays take a fifth of the memory.
    """
    return {
        f"{PREFIX}nodes": array("Q", [nodes[client.client].node for client in record.clients]),
        f"{PREFIX}fates": array("b", [FATE_NUMBERS[client.fate] for client in record.clients]),
        f"{PREFIX}scores": array("d", [client.score for client in record.clients]),
        f"{PREFIX}probabilities": array("d", [client.probability for client in record.clients]),
    }
