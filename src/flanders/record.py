"""The record of a round: what happened to each client, and to the round as a whole.

The results file, the export, the report, the simulator and the Flower wrapper all use these fields. They are
defined only here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from flanders.arrays import BoolVector, FloatVector
from flanders.round import ClientId

PHASES = ("train", "attack", "filter", "aggregate", "evaluate")
"""The phases of a round, in their order. Time is recorded for each."""
DEFENCE_PHASES = ("filter", "aggregate")
"""The phases that are the work of a defence."""


MOST_NAMED, LONGEST_NAME = 12, 20
"""A line names at most this many clients, with at most this many characters of each name, so that it stays
short."""


class Fate(StrEnum):
    """What happened to one client in one round."""

    KEPT = "kept"
    """Its model was aggregated."""
    DROPPED = "dropped"
    """The filter left its model out."""
    REFUSED = "refused"
    """Its reply could not be used, e.g. because it held NaN."""
    BANNED = "banned"
    """The server did not ask it, since it had been dropped too often."""
    SILENT = "silent"
    """The server asked it, and it did not reply."""


@dataclass(frozen=True)
class ClientRecord:
    """What happened to one client in one round."""

    client: ClientId
    fate: Fate
    score: float = math.nan
    """How abnormal its model looked: higher is more abnormal. NaN if nothing judged it."""
    probability: float = math.nan
    """Its probability of being malicious. NaN if the filter cannot tell."""
    reason: str = ""
    """Why it was not kept, in words."""
    weight: float = math.nan
    """How much its model counts in an average, usually its number of examples. NaN if no model came."""
    malicious: bool | None = None
    """Whether it sent poison. None if nobody knows, as in a real federation."""

    @property
    def kept(self) -> bool:
        """Whether its model was aggregated."""
        return self.fate is Fate.KEPT


def lines_about(clients: Sequence[ClientRecord]) -> list[str]:
    """Return three lines about clients: how many were kept, who was not, and the most frequent reason.

    Examples
    --------
    >>> lines_about([ClientRecord("ann", Fate.KEPT), ClientRecord("eve", Fate.DROPPED, reason="far off")])
    ['kept      1 of 2 clients', 'not kept  eve', 'why       far off']
    """
    out = [client for client in clients if not client.kept]
    names = ", ".join(ascii(client.client).strip("'")[:LONGEST_NAME] for client in out[:MOST_NAMED])
    more = f" and {len(out) - MOST_NAMED} more" if len(out) > MOST_NAMED else ""
    why = Counter(client.reason for client in out).most_common(1)
    return [
        f"kept      {len(clients) - len(out)} of {len(clients)} clients",
        f"not kept  {names + more or 'nobody'}",
        f"why       {why[0][0] if why else '-'}",
    ]


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What happened in one round."""

    number: int
    """The number of the round, from 1."""
    clients: tuple[ClientRecord, ...] = ()
    note: str = ""
    """Anything unusual that happened, in words."""
    accuracy: float = math.nan
    """The accuracy of the new global model on the server's test examples. NaN if it was not measured."""
    loss: float = math.nan
    attack_success: float = math.nan
    """The share of the aimed test examples that the model takes for the class that the attacker wants.

    The aimed examples are all images with the attacker's trigger or, if the attack flips the labels of a class, the
    examples of this class. NaN if the attack has no target.
    """
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time by phase; see `PHASES`."""
    stayed: bool = False
    """Whether the global model is still that of the last round."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are. 1 if they are as usual."""
    source_accuracy: float = math.nan
    """The share of the aimed test examples that the model still takes for their own class; see `attack_success`.
    NaN if the attack has no target."""

    def having(self, *fates: Fate) -> list[ClientRecord]:
        """Return the records of the clients with one of these fates."""
        return [client for client in self.clients if client.fate in fates]

    @property
    def counts(self) -> dict[Fate, int]:
        """The number of clients of each fate."""
        found = Counter(client.fate for client in self.clients)
        return {fate: found[fate] for fate in Fate}

    @property
    def ids(self) -> tuple[ClientId, ...]:
        """The clients' names, in the order of `clients`."""
        return tuple(client.client for client in self.clients)

    @property
    def kept(self) -> BoolVector:
        """For each client, whether its model was aggregated."""
        return np.array([client.kept for client in self.clients], dtype=bool)

    @property
    def malicious(self) -> BoolVector:
        """For each client, whether it is known to have sent poison."""
        return np.array([bool(client.malicious) for client in self.clients], dtype=bool)

    @property
    def scores(self) -> FloatVector:
        """The clients' scores; NaN where nothing judged a client."""
        return np.array([client.score for client in self.clients], dtype=np.float64)

    @property
    def probabilities(self) -> FloatVector:
        """The clients' probabilities of being malicious; NaN where the filter cannot tell."""
        return np.array([client.probability for client in self.clients], dtype=np.float64)

    @property
    def threshold(self) -> float:
        """The largest score that was kept; NaN if no kept client has a score."""
        return max((c.score for c in self.clients if c.kept and not math.isnan(c.score)), default=math.nan)
