"""The record of a round as Flower's users read it: a line of the log, and the metrics in Flower's `Result`."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence

from flanders.flower.identity import AskedClient
from flanders.record import ClientRecord, Fate, RoundRecord
from flanders.round import ClientId

PREFIX = "flanders-"
"""The first letters of our metrics in `Result`."""
MOST_NAMED = 20
"""The most nodes of one fate that a line of the log names. The results file has all of them."""
FATE_NUMBERS = {Fate.KEPT: 0, Fate.DROPPED: 1, Fate.REFUSED: 2, Fate.SILENT: 3, Fate.BANNED: 4}
"""The number of each fate in `Result`, which can hold nothing but numbers."""

Details = dict[str, "array[int] | array[float]"]
"""The numbers of each client of a round, by the name of the metric."""
Metric = int | float | list[int] | list[float]
"""What Flower's `MetricRecord` can hold."""
Nodes = Mapping[ClientId, AskedClient]
"""The node of each client."""


def line_of(record: RoundRecord, nodes: Nodes) -> str:
    """Return a round in one line: how many clients were kept, and which were not and why."""
    kept = len(record.having(Fate.KEPT))
    replied = len(record.having(Fate.KEPT, Fate.DROPPED, Fate.REFUSED))
    parts = [f"round {record.number}: kept {kept} of {replied} replies", *unused_of(record, nodes), record.note]
    return "; ".join(part for part in parts if part)


def unused_of(record: RoundRecord, nodes: Nodes) -> list[str]:
    """Return the clients that were not kept and why, in words, one text for each fate."""
    by_fate = {fate: record.having(fate) for fate in FATE_NUMBERS if fate is not Fate.KEPT}
    return [f"{fate} {_several(some, nodes)}" for fate, some in by_fate.items() if some]


def metrics_of(record: RoundRecord, nodes: Nodes, *, stayed: bool) -> dict[str, Metric]:
    """Return the number of clients of each fate, and the nodes whose replies were not used.

    `stayed` tells whether the global model is still that of the last round.
    """
    unused = record.having(Fate.DROPPED, Fate.REFUSED)
    return {
        **{f"{PREFIX}{fate}": len(record.having(fate)) for fate in FATE_NUMBERS},
        f"{PREFIX}stayed": int(stayed),
        f"{PREFIX}threshold": record.threshold,
        f"{PREFIX}unused-nodes": [nodes[client.client].node for client in unused],
    }


def details_of(record: RoundRecord, nodes: Nodes) -> Details:
    """Return the node, the fate, the score and the probability of each client, as arrays of the same length.

    The details of all rounds are kept until the federation ends. An array takes a fifth of the memory of a list.
    """
    return {
        f"{PREFIX}nodes": array("Q", [nodes[client.client].node for client in record.clients]),
        f"{PREFIX}fates": array("b", [FATE_NUMBERS[client.fate] for client in record.clients]),
        f"{PREFIX}scores": array("d", [client.score for client in record.clients]),
        f"{PREFIX}probabilities": array("d", [client.probability for client in record.clients]),
    }


def _several(clients: Sequence[ClientRecord], nodes: Nodes) -> str:
    more = f" and {len(clients) - MOST_NAMED} more" if len(clients) > MOST_NAMED else ""
    return ", ".join(f"{nodes[c.client].label} [{_why(c)}]" for c in clients[:MOST_NAMED]) + more


def _why(client: ClientRecord) -> str:
    """Return why a client was not kept. For a dropped client the score comes first."""
    if client.fate is not Fate.DROPPED or math.isnan(client.score):
        return client.reason
    chance = "" if math.isnan(client.probability) else f", p={client.probability:.2g}"
    words = "" if client.reason.startswith("score ") else f": {client.reason}"  # the reason may be the score alone
    return f"score {client.score:.3g}{chance}{words}"
