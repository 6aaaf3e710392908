"""What the runs of a results file came to, one line each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flanders.experiments.grid import Table
from flanders.experiments.schema import PHASES, connect_for_reading, explained

_QUERY = f"""
SELECT run.id, run.spec, run.status, run.error, run.created, run.finished,
       a.rounds, a.best, a.seconds, a.last, b.caught, b.wronged, b.missed,
       coalesce(b.unusable, 0)
FROM run
LEFT JOIN (
    SELECT run, count(*) AS rounds, max(accuracy) AS best, total({" + ".join(PHASES)}) AS seconds,
           (SELECT accuracy FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS last
    FROM round GROUP BY run
) AS a ON a.run = run.id
LEFT JOIN (
    SELECT run, total(malicious AND NOT kept) AS caught, total(NOT malicious AND NOT kept) AS wronged,
           total(malicious AND kept) AS missed, sum(unusable) AS unusable
    FROM client GROUP BY run
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
    """Share of the dropped that were malicious, all rounds together."""
    recall: float | None
    """Share of the malicious that were dropped, all rounds together."""
    unusable: int
    """How many updates were not finite, or refused in a live federation, all rounds together."""


def summarise(path: Path, ids: Sequence[str] | None = None) -> list[Summary]:
    """Return what the runs of a results file (or these of them) came to."""
    connection = connect_for_reading(Path(path))
    try:
        with explained(Path(path)):
            rows = connection.execute(_QUERY).fetchall()
    finally:
        connection.close()
    found = []
    for row in rows:
        id_, spec, status, error, created, finished, rounds, best, seconds, last, caught, wronged, missed, bad = row
        if ids is not None and id_ not in ids:
            continue
        precision = _ratio(caught, (caught or 0) + (wronged or 0))
        recall = _ratio(caught, (caught or 0) + (missed or 0))
        spec_ = json.loads(spec)
        found.append(
            Summary(
                id_,
                spec_,
                status,
                error,
                created,
                finished,
                rounds or 0,
                best,
                last,
                seconds or 0.0,
                precision,
                recall,
                bad,
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


def _ratio(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None and whole else None
