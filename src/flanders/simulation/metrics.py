"""Measures of a simulated run: how well the filter found malicious clients, the accuracy, and the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flanders.record import RoundRecord
from flanders.results.confusion import Confusion, area_under_curve


def confusion(records: Iterable[RoundRecord], first_round: int = 1) -> Confusion:
    """Count the malicious and honest clients that were kept or dropped, in all rounds from `first_round` on.

    The FLANDERS paper counts all rounds. The code published with it counts from the third round on.
    """
    counts = (Confusion.of(record.malicious, record.kept) for record in records if record.number >= first_round)
    return sum(counts, Confusion())


def auc(records: Iterable[RoundRecord], first_round: int = 1) -> float:
    """Return how often a malicious client scores higher than an honest client of the same round.

    Rounds before `first_round` do not count. See `area_under_curve`.
    """
    return area_under_curve((r.malicious, r.scores) for r in records if r.number >= first_round)


def summary(records: Sequence[RoundRecord], first_round: int = 1) -> dict[str, Any]:
    """Return the measures by which runs are compared, by their names.

    Precision, recall, false positive rate and AUC count only the rounds from `first_round` on.
    """
    if not records:
        return {"rounds": 0}
    counts = confusion(records, first_round)
    phases: dict[str, float] = {}
    for record in records:
        for phase, spent in record.seconds.items():
            phases[phase] = phases.get(phase, 0.0) + spent
    return {
        "rounds": len(records),
        "best_accuracy": max(record.accuracy for record in records),
        "final_accuracy": records[-1].accuracy,
        "final_loss": records[-1].loss,
        "attack_success": records[-1].attack_success,
        "source_accuracy": records[-1].source_accuracy,
        "precision": counts.precision,
        "recall": counts.recall,
        "false_positive_rate": counts.false_positive_rate,
        "auc": auc(records, first_round),
        "seconds": sum(phases.values()),
        "seconds_by_phase": phases,
    }
