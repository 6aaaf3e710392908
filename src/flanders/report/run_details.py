"""Reads one run of a results file in detail: its rounds, the clients that were not kept, and the reasons.

The command `flanders show RESULTS RUN` prints them.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from flanders.client_ids import ClientId, sort_key
from flanders.record import Fate
from flanders.results.schema import reading


@dataclass(frozen=True)
class RoundDetails:
    """One round: what was measured, and how many clients had each fate.

    The fate of a client is what happened to it: it was kept, dropped, refused, banned or silent. `RoundRecord`
    explains the measured numbers.
    """

    round: int
    accuracy: float | None
    loss: float | None
    attack_success: float | None
    source_accuracy: float | None
    fates: dict[str, int]
    """The number of clients with each fate. Fates that did not occur are left out."""
    caught: int | None
    """The number of malicious clients that were not kept. None if the malicious clients are not known."""
    missed: int | None
    """The number of malicious clients that were kept. None if the malicious clients are not known."""
    note: str

    def as_json(self) -> dict[str, object]:
        """Return the round as a dictionary without inner dictionaries. It has a number for every fate."""
        values = asdict(self)
        counts = values.pop("fates")
        return {**values, **{str(fate): counts.get(fate, 0) for fate in Fate}}


@dataclass(frozen=True)
class ClientDetails:
    """One client that was not kept in at least one round."""

    client: ClientId
    rounds: int
    """In how many rounds the client has a record."""
    not_kept: int
    """In how many of these rounds the client was not kept."""
    fates: dict[str, int]
    """The number of rounds with each fate other than `kept`."""
    reason: str
    """The most frequent reason why the client was not kept; see `_typical`."""


@dataclass(frozen=True)
class RunDetails:
    """The rounds of a run, and the clients that were not kept.

    The clients that were most often not kept come first.
    """

    rounds: list[RoundDetails]
    clients: list[ClientDetails]
    traceback: str
    """The traceback of the error, if the run failed."""


def read_run_details(path: Path, id_: str) -> RunDetails:
    """Read one run of a results file in detail."""
    with reading(path) as connection:
        connection.execute("BEGIN")
        [traceback] = connection.execute("SELECT traceback FROM run WHERE id = ?", (id_,)).fetchone()
        return RunDetails(_rounds(connection, id_), _clients(connection, id_), str(traceback or "").rstrip())


def _rounds(connection: sqlite3.Connection, id_: str) -> list[RoundDetails]:
    fates: dict[int, dict[str, int]] = defaultdict(dict)
    query = "SELECT round, fate, count(*) FROM client WHERE run = ? GROUP BY round, fate"
    for number, fate, count in connection.execute(query, (id_,)):
        fates[number][fate] = count
    truth = {
        number: (caught, missed)
        for number, caught, missed in connection.execute(
            f"SELECT round, sum(malicious * (fate != '{Fate.KEPT}')), sum(malicious * (fate = '{Fate.KEPT}')) "
            "FROM client WHERE run = ? GROUP BY round",
            (id_,),
        )
    }
    rounds = connection.execute(
        "SELECT number, accuracy, loss, attack_success, source_accuracy, note FROM round WHERE run = ? "
        "ORDER BY number",
        (id_,),
    )
    return [
        RoundDetails(number, accuracy, loss, success, source, fates[number], *truth.get(number, (None, None)), note)
        for number, accuracy, loss, success, source, note in rounds
    ]


def _clients(connection: sqlite3.Connection, id_: str) -> list[ClientDetails]:
    rounds = dict(
        connection.execute("SELECT client, count(*) FROM client WHERE run = ? GROUP BY client", (id_,)).fetchall()
    )
    fates: dict[ClientId, Counter[str]] = defaultdict(Counter)
    reasons: dict[ClientId, list[str]] = defaultdict(list)
    query = f"SELECT client, fate, reason FROM client WHERE run = ? AND fate != '{Fate.KEPT}' ORDER BY round"
    for client, fate, reason in connection.execute(query, (id_,)):
        fates[client][fate] += 1
        if reason:
            reasons[client].append(reason)
    details = [
        ClientDetails(client, rounds[client], counts.total(), dict(counts.most_common()), _typical(reasons[client]))
        for client, counts in fates.items()
    ]
    return sorted(details, key=lambda row: (-row.not_kept, sort_key(row.client)))


def _typical(reasons: list[str]) -> str:
    """Return the most frequent reason.

    Reasons that differ only in their numbers count as the same reason. Of such reasons, the latest is returned.

    Examples
    --------
    >>> _typical(["score 3.2", "no reply", "score 4e-05"])
    'score 4e-05'
    """
    kinds = {reason: re.sub(r"\d[\d.e+-]*", "#", reason) for reason in reasons}
    frequency = Counter(kinds[reason] for reason in reasons)
    return max(reversed(reasons), key=lambda reason: frequency[kinds[reason]], default="")
