"""Computes accuracy, precision, recall and time of our runs as the FLANDERS paper reports them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flanders.results.schema import reading
from flanders.results.summary import read_summaries

Measures = dict[str, float | None]
"""The value of each measure of a run. The value is None if the measure is not defined for the run, e.g. the
precision if no client was dropped."""


def read_measures(path: Path, first_round: int) -> dict[str, Measures]:
    """Return the measures of each finished run, by the id of the run.

    The measure "accuracy" is the best accuracy of a run, as in the paper. Precision, recall and the best accuracy
    are computed from round `first_round` on.
    """
    if not path.exists():
        return {}
    return {
        run.id: {
            "accuracy": run.best,
            "final-accuracy": run.final,
            "seconds": run.seconds,
            "precision": run.precision,
            "recall": run.recall,
        }
        for run in read_summaries(path, first_round=first_round)
        if run.status == "done" and run.best is not None
    }


def read_curves(path: Path, ids: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the accuracy in each round of the runs with the given ids. Unfinished runs are left out."""
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
