"""The comparison of our values with the published values of the FLANDERS paper, cell by cell.

A cell is one number of a table. Most cells have a value in the paper. The authors also ran their code again later.
Some cells have a second published value from this re-run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from flanders.paper.measures import Measures
from flanders.paper.tables import UNDEFINED, Cell, published, rerun
from flanders.paper.variants import Variant

DETECTION = ("precision", "recall")
TOLERANCES = {"accuracy": 0.10, "precision": 0.05, "recall": 0.05}
"""The largest distance between our value and a published value that counts as agreement, for each measure. If a
cell has two published values, the distance to the nearer one counts."""
OPT_MINORITY_TOLERANCE = 0.15
"""The tolerance for precision and recall under the attack OPT with 20% malicious clients. It is larger, since the
two published values differ there."""


@dataclass(frozen=True)
class Compared:
    """A cell with our value and the published values. A missing value is None."""

    cell: Cell
    paper: float | None
    """The value in the paper."""
    rerun: float | None
    """The value of the authors' re-run."""
    ours: float | None
    """The mean of our values over the seeds."""
    low: float | None
    """The lowest of our values."""
    high: float | None
    """The highest of our values."""
    seeds: int
    """How many seeds have given a value."""

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's value."""
        return None if self.ours is None or self.paper is None else self.ours - self.paper

    @property
    def distance(self) -> float | None:
        """The distance between our value and the nearer one of the two published values."""
        theirs = [value for value in (self.paper, self.rerun) if value is not None]
        return None if self.ours is None or not theirs else min(abs(self.ours - value) for value in theirs)

    @property
    def tolerance(self) -> float:
        """The largest distance that counts as agreement."""
        c = self.cell
        if c.measure in DETECTION and (c.attack, c.malicious_ratio) == ("opt", "0.2"):
            return OPT_MINORITY_TOLERANCE
        return TOLERANCES[c.measure]

    @property
    def agrees(self) -> bool:
        """Whether we have a value that is within the tolerance, apart from rounding errors."""
        return self.distance is not None and self.distance <= self.tolerance + 1e-9


def compare_cells(
    variant: Variant,
    cells: Iterable[Cell],
    measures: Mapping[str, Measures],
    seeds: Sequence[int],
    overrides: Sequence[str] = (),
) -> list[Compared]:
    """Return each cell with our value and the published values. `measures` has the results of runs by their ids."""
    compared = []
    for cell in cells:
        values = []
        for seed in seeds:
            run = variant.run(cell, seed, overrides)
            measured = None if run is None else measures.get(run.id)
            value = None if measured is None else measured.get(cell.measure)
            if value is not None:
                values.append(value)
        mean = fmean(values) if values else None
        low, high = min(values, default=None), max(values, default=None)
        compared.append(with_published(cell, mean, low, high, len(values)))
    return compared


def with_published(cell: Cell, ours: float | None, low: float | None, high: float | None, seeds: int) -> Compared:
    """Return a cell with our value and the published values."""
    paper, again = published().get((cell.table, cell.key)), rerun().get(cell.key)
    return Compared(cell, _number(paper), _number(again), ours, low, high, seeds)


@dataclass(frozen=True)
class Verdict:
    """How many of our values agree with the published values, for one measure."""

    measure: str
    """Precision and recall, or accuracy."""
    agreeing: int
    """The number of cells in which our value agrees with the paper or with the re-run."""
    compared: int
    """The number of cells that have a value in the paper and a value of ours."""
    missing: int
    """The number of cells that have a value in the paper, but no value of ours yet."""
    others: tuple[Compared, ...]
    """The cells that do not agree, the largest distance first."""


def verdicts_on(compared: Sequence[Compared]) -> list[Verdict]:
    """Return two verdicts: one on precision and recall, one on accuracy.

    Only cells with a value in the paper count. A cell that is in two tables counts twice.
    """
    verdicts = []
    for measure, metrics in (("precision and recall", DETECTION), ("accuracy", ("accuracy",))):
        in_paper = [c for c in compared if c.paper is not None and c.cell.measure in metrics]
        done = [c for c in in_paper if c.ours is not None]
        others = sorted((c for c in done if not c.agrees), key=lambda c: -(c.distance or 0.0))
        agreeing, missing = len(done) - len(others), len(in_paper) - len(done)
        verdicts.append(Verdict(measure, agreeing, len(done), missing, tuple(others)))
    return verdicts


def _number(text: str | None) -> float | None:
    return None if text is None or text == UNDEFINED else float(text)
