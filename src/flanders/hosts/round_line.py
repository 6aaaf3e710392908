"""Functions that describe a round in one line of the log, for the wrappers for Flower and NVFLARE."""

from __future__ import annotations

import math
from collections.abc import Callable

from flanders.client_ids import ClientId
from flanders.plain_text import first_few, printable
from flanders.record import ClientRecord, Fate, RoundRecord

MOST_NAMED = 20
"""The most clients that a line names for each fate, so that lines stay short. A fate is what happened to a client,
e.g. that it was dropped."""

Label = Callable[[ClientId], str]
"""A function that returns the name of a client for the log."""


def line_of(record: RoundRecord, label: Label = printable) -> str:
    """Describe a round in one line: how many clients were kept, which were not, and why."""
    kept = len(record.having(Fate.KEPT))
    replied = len(record.having(Fate.KEPT, Fate.DROPPED, Fate.REFUSED))
    parts = [f"round {record.number}: kept {kept} of {replied} replies", *unused_of(record, label), record.note]
    return "; ".join(part for part in parts if part)


def unused_of(record: RoundRecord, label: Label = printable) -> list[str]:
    """Return a text for each fate except "kept". It names the clients with this fate, and says why."""
    unused = (Fate.DROPPED, Fate.REFUSED, Fate.SILENT, Fate.BANNED)
    by_fate = {fate: record.having(fate) for fate in unused}

    def named(client: ClientRecord) -> str:
        return f"{label(client.client)} [{why(client)}]"

    return [f"{fate} {first_few(clients, MOST_NAMED, named)}" for fate, clients in by_fate.items() if clients]


def why(client: ClientRecord) -> str:
    """Return in words why a client was not kept. For a dropped client with a score, the score comes first."""
    if client.fate is not Fate.DROPPED or math.isnan(client.score):
        return client.reason
    chance = "" if math.isnan(client.probability) else f", probability of malice {client.probability:.2f}"
    words = "" if client.reason.startswith("score ") else f": {client.reason}"  # the reason may be only the score
    return f"score {client.score:.3g}{chance}{words}"
