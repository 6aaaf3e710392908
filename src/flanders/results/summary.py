"""Reads the runs of a results file, each with a few numbers that sum it up. Tables of runs are made from them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flanders.record import DEFENCE_PHASES, PHASES, Fate
from flanders.results.confusion import Confusion
from flanders.results.schema import reading
from flanders.results.tree import Table

COUNTED = ("caught", "wronged", "missed", "passed")
"""The fields of a `Confusion`."""
_KEPT = f"fate = '{Fate.KEPT}'"
COUNTS = (
    f"total(malicious AND NOT {_KEPT}) AS caught, total(NOT malicious AND NOT {_KEPT}) AS wronged, "
    f"total(malicious AND {_KEPT}) AS missed, total(NOT malicious AND {_KEPT}) AS passed"
)
"""SQL for the counts of a `Confusion`, from rows of the table `client`."""
UNUSABLE = f"total(fate IN ('{Fate.REFUSED}', '{Fate.SILENT}')) AS unusable"
"""SQL for the number of replies that could not be used."""
_QUERY = f"""
SELECT {", ".join(f"run.{name} AS {name}" for name in ("id", "spec", "status", "error", "created", "finished"))},
       coalesce(a.rounds, 0) AS rounds, a.best AS best, a.final AS final, a.success AS attack_success,
       a.source AS source_accuracy, coalesce(a.seconds, 0.0) AS seconds,
       coalesce(a.defending, 0.0) AS defence_seconds, CAST(coalesce(b.unusable, 0) AS INTEGER) AS unusable,
       {", ".join(f"CAST(coalesce(b.{name}, 0) AS INTEGER) AS {name}" for name in COUNTED)}
FROM run
LEFT JOIN (
    SELECT run, count(*) AS rounds, max(CASE WHEN number >= :first THEN accuracy END) AS best,
           total({" + ".join(PHASES)}) AS seconds, total({" + ".join(DEFENCE_PHASES)}) AS defending,
           (SELECT accuracy FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS final,
           (SELECT attack_success FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS success,
           (SELECT source_accuracy FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS source
    FROM round GROUP BY run
) AS a ON a.run = run.id
LEFT JOIN (
    SELECT run, {UNUSABLE}, {COUNTS}
    FROM client WHERE round >= :first GROUP BY run
) AS b ON b.run = run.id
ORDER BY run.position
"""


@dataclass(frozen=True)
class RunSummary:
    """A run and its results so far. A result is None if nothing was measured yet."""

    id: str
    spec: Table
    status: str
    error: str | None
    created: str
    finished: str | None
    rounds: int
    """How many rounds are saved."""
    best: float | None
    """The highest accuracy of all rounds from `first_round` on (see `read_summaries`)."""
    final: float | None
    """The accuracy after the last round."""
    seconds: float
    """The seconds that all rounds took together."""
    defence_seconds: float
    """The seconds that the filter and the aggregator took in all rounds together."""
    precision: float | None
    """The share of malicious clients among the clients that were not kept."""
    recall: float | None
    """The share of the malicious clients that were not kept."""
    false_positive_rate: float | None
    """The share of the honest clients that were not kept."""
    attack_success: float | None
    """The attack success after the last round; see `RoundRecord.attack_success`."""
    source_accuracy: float | None
    """The accuracy after the last round on the examples that the attack targets."""
    unusable: int
    """How many replies were refused or did not arrive."""


def read_summaries(path: Path, ids: Sequence[str] | None = None, first_round: int = 1) -> list[RunSummary]:
    """Return the summaries of all runs of a results file, or of the runs with these ids.

    `best`, `unusable`, `precision`, `recall` and `false_positive_rate` are computed from the rounds from
    `first_round` on. All other values are computed from all rounds.
    """
    with reading(Path(path)) as connection:
        cursor = connection.execute(_QUERY, {"first": first_round})
        names = [name for name, *_ in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    summaries = []
    for row in rows:
        if ids is None or row["id"] in ids:
            clients = Confusion(*(row.pop(name) for name in COUNTED))
            rates = {
                name: _number(getattr(clients, name)) for name in ("precision", "recall", "false_positive_rate")
            }
            summaries.append(RunSummary(**{**row, **rates, "spec": json.loads(row["spec"])}))
    return summaries


def _number(value: float) -> float | None:
    """Return a number, or None in place of NaN, since JSON has no NaN."""
    return None if math.isnan(value) else value
