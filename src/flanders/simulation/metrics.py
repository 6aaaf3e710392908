"""How well malicious clients were told from honest ones, and what is worth knowing of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flanders.simulation.records import RoundRecord


@dataclass(frozen=True)
class Confusion:
    """Counts of clients over rounds, as the paper adds them up; who was dropped counts as flagged."""

    true_positives: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    true_negatives: int = 0

    @classmethod
    def of(cls, records: Iterable[RoundRecord], first_round: int = 1) -> Confusion:
        """Count over all rounds from `first_round` on.

        The paper counts all of them, its published code from the third.
        """
        counts = np.zeros((2, 2), dtype=np.int64)
        for record in records:
            if record.number >= first_round:
                np.add.at(counts, (record.malicious.astype(int), (~record.kept).astype(int)), 1)
        return cls(int(counts[1, 1]), int(counts[0, 1]), int(counts[1, 0]), int(counts[0, 0]))

    @property
    def precision(self) -> float:
        """The share of malicious clients among those flagged, tp / (tp + fp); NaN if nobody was flagged."""
        return _share(self.true_positives, self.false_positives)

    @property
    def recall(self) -> float:
        """The share of malicious clients that were flagged, tp / (tp + fn); NaN if there were none."""
        return _share(self.true_positives, self.false_negatives)

    @property
    def false_positive_rate(self) -> float:
        """The share of honest clients that were flagged, fp / (fp + tn); NaN if there were none."""
        return _share(self.false_positives, self.true_negatives)


def auc(records: Iterable[RoundRecord], first_round: int = 1) -> float:
    """Return how often a malicious client scores above an honest one of its round; ties count half.

    The area under the ROC curve, by ranks, over all pairs within rounds: scores of different rounds
    cannot be compared. Clients without a score are left out; NaN if there is no pair.
    """
    wins, pairs = 0.0, 0
    for record in records:
        judged = ~np.isnan(record.scores)
        bad = record.malicious[judged]
        if record.number < first_round or not bad.any() or bad.all():
            continue
        _, group, size = np.unique(record.scores[judged], return_inverse=True, return_counts=True)
        rank = (np.cumsum(size) - (size - 1) / 2)[group]
        b = int(bad.sum())
        wins += float(rank[bad].sum()) - b * (b + 1) / 2
        pairs += b * (len(bad) - b)
    return wins / pairs if pairs else float("nan")


def summary(records: Sequence[RoundRecord], first_round: int = 1) -> dict[str, Any]:
    """Return the numbers by which runs are compared; detection is counted from `first_round` on."""
    if not records:
        return {"rounds": 0}
    counts = Confusion.of(records, first_round)
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
        "precision": counts.precision,
        "recall": counts.recall,
        "false_positive_rate": counts.false_positive_rate,
        "auc": auc(records, first_round),
        "seconds": sum(phases.values()),
        "seconds_by_phase": phases,
    }


def _share(part: int, rest: int) -> float:
    return part / (part + rest) if part + rest else float("nan")
