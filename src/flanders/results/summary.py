"""What the runs of a results file came to, one line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flanders.record import PHASES
from flanders.results.confusion import Confusion
from flanders.results.schema import reading, without_nan
from flanders.results.tree import Table

COUNTS = (
    "total(malicious AND fate != 'kept') AS caught, total(NOT malicious AND fate != 'kept') AS wronged, "
    "total(malicious AND fate = 'kept') AS missed, total(NOT malicious AND fate = 'kept') AS passed"
)
"""The columns of a `Confusion`, of rows of the table `client`."""
_QUERY = f"""
SELECT run.id, run.spec, run.status, run.error, run.created, run.finished,
       a.rounds, a.best, a.last, a.seconds, b.unusable, b.caught, b.wronged, b.missed, b.passed
FROM run
LEFT JOIN (
    SELECT run, count(*) AS rounds, max(CASE WHEN number >= :first THEN accuracy END) AS best,
           total({" + ".join(PHASES)}) AS seconds,
           (SELECT accuracy FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS last
    FROM round GROUP BY run
) AS a ON a.run = run.id
LEFT JOIN (
    SELECT run, total(fate IN ('refused', 'silent')) AS unusable, {COUNTS}
    FROM client WHERE round >= :first GROUP BY run
) AS b ON b.run = run.id
ORDER BY run.position
"""


@dataclass(frozen=True)
class Summary:
    """A run and what came of it; None where there is nothing to tell yet."""

    id: str
    spec: Table
    status: str
    error: str | None
    created: str
    finished: str | None
    rounds: int
    """How many rounds are saved."""
    best: float | None
    final: float | None
    seconds: float
    precision: float | None
    """Share of the dropped that were malicious, over rounds."""
    recall: float | None
    """Share of the malicious that were dropped, over rounds."""
    unusable: int
    """How many updates were not finite, or refused in a live federation, over rounds."""


def summarise(path: Path, ids: Sequence[str] | None = None, first_round: int = 1) -> list[Summary]:
    """Return what the runs of a results file (or these of them) came to.

    Clients and the best accuracy count from `first_round` on.
    """
    with reading(Path(path)) as connection:
        rows = connection.execute(_QUERY, {"first": first_round}).fetchall()
    found = []
    for id_, spec, status, error, created, finished, rounds, best, final, seconds, unusable, *counts in rows:
        if ids is not None and id_ not in ids:
            continue
        clients = Confusion(*(int(count or 0) for count in counts))
        found.append(
            Summary(
                id_,
                json.loads(spec),
                status,
                error,
                created,
                finished,
                rounds or 0,
                best,
                final,
                seconds or 0.0,
                without_nan(clients.precision),
                without_nan(clients.recall),
                int(unusable or 0),
            )
        )
    return found


def is_live(spec: Table) -> bool:
    """Tell whether a run is a live federation, whose clients are not simulated and whose attackers nobody knows."""
    return "live" in spec


def attack_of(spec: Table) -> tuple[str, float]:
    """Return the name of a run's attack, if one is known, and its share of malicious clients."""
    if is_live(spec):
        return "unknown", 0.0
    parts = [part for part in (spec["attack"], spec["poison"]) if part is not None]
    return " + ".join(part["name"] for part in parts) or "none", parts[0]["fraction"] if parts else 0.0


def rule_of(spec: Table) -> str:
    """Return the names of a run's rule and of what stands in front of it."""
    rule = spec["aggregator"]
    return " > ".join([*(link["name"] for link in rule["preaggregators"]), rule["name"]])


def label(spec: Table) -> str:
    """Return a run in a few words."""
    name, fraction = attack_of(spec)
    attack = name if name == "none" else f"{name} r={fraction:g}"
    dataset = spec["data"]["dataset"]["name"]
    defence = f"{spec['filter']['name']} + {rule_of(spec)}"
    engine = f", on {spec['engine']}" if "engine" in spec else ""
    return f"{dataset}, {attack}, {defence}, seed {spec['federation']['seed']}{engine}"
