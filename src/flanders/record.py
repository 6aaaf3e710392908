"""The record of a round: what happened to each client, and to the round as a whole.

The results file, the export, the report, the simulator and the Flower wrapper all use these classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from flanders.arrays import BoolVector, FloatVector
from flanders.client_ids import ClientId
from flanders.plain_text import first_few

PHASES = ("train", "attack", "filter", "aggregate", "evaluate")
"""The phases of a round, in their order. The time of each phase is recorded."""
DEFENCE_PHASES = ("filter", "aggregate")
"""The phases whose time is spent by the defence."""
STAYS = "the global model stays"
"""The end of notes about a round without a new model."""
MOST_NAMED, LONGEST_NAME = 12, 20
"""The most clients that `lines_about` names, and the most characters of each name, so that lines stay short."""


class Fate(StrEnum):
    """What happened to one client in one round."""

    KEPT = "kept"
    """Its model was aggregated."""
    DROPPED = "dropped"
    """The filter left its model out."""
    REFUSED = "refused"
    """Its reply could not be used, e.g. because it held NaN."""
    BANNED = "banned"
    """The server did not ask it for a model, since it had been dropped too often."""
    SILENT = "silent"
    """The server asked it for a model, and it did not reply."""


@dataclass(frozen=True)
class ClientRecord:
    """What happened to one client in one round."""

    client: ClientId
    fate: Fate
    score: float = math.nan
    """The filter's score of its model: higher is more abnormal. NaN if it has no score."""
    probability: float = math.nan
    """Its probability of being malicious. NaN if the filter does not compute one."""
    reason: str = ""
    """Why it was not kept, in words. Empty if it was kept."""
    weight: float = math.nan
    """How much its model counts in an average, usually its number of examples. NaN if no model came."""
    malicious: bool | None = None
    """Whether it sent a poisoned model. None if that is unknown, as in a real federation."""

    @property
    def kept(self) -> bool:
        """Whether its model was aggregated."""
        return self.fate is Fate.KEPT


def lines_about(clients: Sequence[ClientRecord]) -> list[str]:
    """Return three lines: how many clients were kept, which were not, and the most frequent reason.

    Examples
    --------
    >>> lines_about([ClientRecord("ann", Fate.KEPT), ClientRecord("eve", Fate.DROPPED, reason="far off")])
    ['kept      1 of 2 clients', 'not kept  eve', 'why       far off']
    """
    unused = [client for client in clients if not client.kept]
    names = first_few(unused, MOST_NAMED, lambda client: ascii(client.client).strip("'")[:LONGEST_NAME])
    reasons = Counter(client.reason for client in unused).most_common(1)
    return [
        f"kept      {len(clients) - len(unused)} of {len(clients)} clients",
        f"not kept  {names or 'nobody'}",
        f"why       {reasons[0][0] if reasons else '-'}",
    ]


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """What happened in one round."""

    number: int
    """The number of the round, from 1."""
    clients: tuple[ClientRecord, ...] = ()
    note: str = ""
    """Anything unusual that happened, in words. Empty if nothing did."""
    accuracy: float = math.nan
    """The accuracy of the new global model on the server's test examples. NaN if it was not measured."""
    loss: float = math.nan
    """The loss of the new global model on the server's test examples. NaN if it was not measured."""
    attack_success: float = math.nan
    """How well the attack works: the share of targeted test examples to which the model gives the attacker's class.

    If the attack puts a trigger into images, the targeted examples are test images with the trigger. Images that
    truly belong to the attacker's class are left out. If the attack flips the labels of a class, the targeted
    examples are the test examples of this class. NaN if the attack has no target.
    """
    seconds: Mapping[str, float] = field(default_factory=dict)
    """The time of each phase; see `PHASES`."""
    stayed: bool = False
    """Whether the global model is the same as before the round."""
    widening: float = 1.0
    """How many times as wide as usual the filter's limits are. 1 if they are as usual. A filter widens its limits
    after rounds in which it kept nobody, so that the training goes on."""
    source_accuracy: float = math.nan
    """The share of the targeted test examples that get their true class; see `attack_success`. NaN if the attack
    has no target."""

    def having(self, *fates: Fate) -> list[ClientRecord]:
        """Return the records of the clients whose fate is one of `fates`."""
        return [client for client in self.clients if client.fate in fates]

    @property
    def counts(self) -> dict[Fate, int]:
        """The number of clients with each fate."""
        counts = Counter(client.fate for client in self.clients)
        return {fate: counts[fate] for fate in Fate}

    @property
    def ids(self) -> tuple[ClientId, ...]:
        """The clients' ids, in the order of `clients`."""
        return tuple(client.client for client in self.clients)

    @property
    def kept(self) -> BoolVector:
        """For each client, whether its model was aggregated."""
        return np.array([client.kept for client in self.clients], dtype=bool)

    @property
    def malicious(self) -> BoolVector:
        """For each client, whether it is known to have sent a poisoned model."""
        return np.array([bool(client.malicious) for client in self.clients], dtype=bool)

    @property
    def scores(self) -> FloatVector:
        """The clients' scores. NaN for a client without a score."""
        return np.array([client.score for client in self.clients], dtype=np.float64)

    @property
    def probabilities(self) -> FloatVector:
        """The clients' probabilities of being malicious. NaN for a client without one."""
        return np.array([client.probability for client in self.clients], dtype=np.float64)

    @property
    def threshold(self) -> float:
        """The largest score of a kept client. NaN if no kept client has a score."""
        return max((c.score for c in self.clients if c.kept and not math.isnan(c.score)), default=math.nan)
