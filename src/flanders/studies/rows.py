"""The results of a study as a table, with a row for each setting, e.g. for each filter under each attack.

A study varies some keys of the spec. A run has a value for each of these keys. The text with these values, e.g.
"cosine, centred", is called the point of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flanders.report.run_data import RunData
from flanders.report.run_reading import read_results
from flanders.results.confusion import Confusion, area_under_curve
from flanders.results.spec_keys import attack_fraction, attack_name, attack_start, dataset_name, filter_name
from flanders.studies.grid_studies import GridStudy
from flanders.studies.grids import CONTROLS


@dataclass(frozen=True)
class Row:
    """The results of one filter at one point of a study, under one attack.

    Values are means over the seeds. A field that ends in `_low` or `_high` has the lowest or the highest value of
    any seed. The accuracy is the accuracy after the last round. All other values use only the rounds from the first
    attack on: precision and recall of the filter's decisions, the area under the ROC curve of its scores (AUC), and
    its time.
    """

    dataset: str
    attack: str
    fraction: float
    """The share of malicious clients."""
    filter: str
    point: str
    """The values of the varied keys, in words. Empty if the filter does not depend on these keys."""
    seeds: int
    """The number of seeds."""
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    precision: float
    recall: float
    recall_low: float
    recall_high: float
    auc: float
    auc_low: float
    auc_high: float
    filter_ms: float
    """The milliseconds that the filter took per round."""


def tabulate(results: Path, study: GridStudy, ids: Sequence[str]) -> list[Row]:
    """Return the rows of a study from the runs with the given ids in a results file. Unfinished runs are left out.

    The rows have the order of the ids.
    """
    wanted = {id_: place for place, id_ in enumerate(ids)}
    groups: dict[tuple[str, str, float, str, str], list[RunData]] = {}
    for run in sorted(read_results(results), key=lambda run: wanted.get(run.id, 0)):
        if run.id in wanted and run.status == "done":
            attack, fraction = attack_name(run.spec), attack_fraction(run.spec)
            data, name = dataset_name(run.spec), filter_name(run.spec)
            point = study.point(run.spec)
            if name in CONTROLS and all(axis.startswith("filter.") for axis in study.axes):
                point = ""
            groups.setdefault((data, attack, fraction, name, point), []).append(run)
    return [_row(*key, runs) for key, runs in groups.items()]


def _row(dataset: str, attack: str, fraction: float, name: str, point: str, runs: Sequence[RunData]) -> Row:
    measured: dict[str, list[float]] = {"accuracy": [], "precision": [], "recall": [], "auc": [], "filter_ms": []}
    for run in runs:
        attacked = run.rounds >= attack_start(run.spec)  # for each round, whether it counts
        judged = run.present & attacked
        counts = Confusion.of(run.malicious[judged], run.kept[judged])
        scored_rounds = zip(run.malicious[:, attacked].T, run.score[:, attacked].T, strict=True)
        measured["accuracy"].append(float(run.accuracy[-1]))
        measured["precision"].append(counts.precision)
        measured["recall"].append(counts.recall)
        measured["auc"].append(area_under_curve(scored_rounds))
        measured["filter_ms"].append(1000 * float(np.mean(run.seconds["filter"][attacked])))
    mean = {key: float(np.mean(values)) for key, values in measured.items()}
    spread = {
        f"{key}_{end}": float(of(measured[key]))
        for key in ("accuracy", "recall", "auc")
        for end, of in (("low", np.min), ("high", np.max))
    }
    return Row(dataset, attack, fraction, name, point, len(runs), **mean, **spread)
