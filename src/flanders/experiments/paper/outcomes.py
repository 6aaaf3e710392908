"""What the runs of a results file came to, in the paper's measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flanders.experiments.schema import PHASES, reading

Outcome = dict[str, float | None]
"""The value of each measure; None where it is not defined (precision if nobody was dropped)."""


def read_outcomes(path: Path, first_round: int) -> dict[str, Outcome]:
    """Return what each finished run came to, by its id; detection and the best accuracy from `first_round` on."""
    if not path.exists():
        return {}
    query = f"""
        SELECT run.id, a.best, a.last, a.seconds, b.caught, b.wronged, b.missed FROM run
        JOIN (
            SELECT run, max(CASE WHEN number >= :first THEN accuracy END) AS best,
                   total({" + ".join(PHASES)}) AS seconds,
                   (SELECT accuracy FROM round AS r WHERE r.run = round.run ORDER BY number DESC LIMIT 1) AS last
            FROM round GROUP BY run
        ) AS a ON a.run = run.id
        JOIN (
            SELECT run, total(malicious AND NOT kept) AS caught, total(NOT malicious AND NOT kept) AS wronged,
                   total(malicious AND kept) AS missed
            FROM client WHERE round >= :first GROUP BY run
        ) AS b ON b.run = run.id
        WHERE run.status = 'done'
    """
    with reading(path) as connection:
        rows = connection.execute(query, {"first": first_round}).fetchall()
    return {
        run: {
            "accuracy": best,
            "final-accuracy": last,
            "seconds": seconds,
            "precision": _share(caught, wronged),
            "recall": _share(caught, missed),
        }
        for run, best, last, seconds, caught, wronged, missed in rows
    }


def read_curves(path: Path, ids: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the accuracy of each round of these runs, those of them that are done."""
    if not path.exists():
        return {}
    with reading(path) as connection:
        rows = connection.execute(
            "SELECT round.run, round.accuracy FROM round JOIN run ON run.id = round.run "
            "WHERE run.status = 'done' ORDER BY round.run, round.number"
        ).fetchall()
    wanted, curves = set(ids), dict[str, list[float | None]]()
    for run, accuracy in rows:
        if run in wanted:
            curves.setdefault(run, []).append(accuracy)
    return curves


def _share(part: float, rest: float) -> float | None:
    return part / (part + rest) if part + rest else None
