"""The two variants of the FLANDERS paper's experiments, and the runs that they consist of.

The variant "reference" has the settings of the code that was published with the paper. The variant "textbook" has
the settings that the text of the paper describes. A cell is one number of a table of the paper. A spec describes
one run of this package.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flanders.checks import InputError, check_choice, resolve_count
from flanders.experiments.experiment import Experiment
from flanders.experiments.grid import blame_override, override, parse_override
from flanders.experiments.spec import resolve
from flanders.paper.tables import VARIANTS, Cell, spec_text
from flanders.results.tree import Table


@dataclass(frozen=True)
class Variant:
    """The settings of one variant: what the paper's names of datasets, attacks, filters and aggregators stand for.

    Parameters
    ----------
    name
        One of `VARIANTS`.
    first_round
        Precision, recall and the best accuracy are computed from this round on.
    settings
        The content of the variant's file. `base` has the settings of all runs. `datasets`, `attacks`, `filters` and
        `aggregators` have the settings that belong to each name.
    """

    name: str
    first_round: int
    settings: Table
    _resolved: dict[tuple[object, ...], Experiment] = field(default_factory=dict, compare=False, repr=False)

    def run(self, cell: Cell, seed: int, overrides: Sequence[str] = ()) -> Experiment | None:
        """Return the run that gives the value of a cell, or None if the aggregator cannot be applied in this cell.

        `overrides` are changes to the spec of the run, each of the form `key=value`.
        """
        if cell.is_undefined:
            return None
        key = (cell.key[:-1], json.dumps(cell.changes), seed, tuple(overrides))
        if key not in self._resolved:
            point = self.point(cell, seed)
            for text in overrides:
                point = override(point, *parse_override(text))
            place = f"{cell.table} ({self.name})"
            try:
                self._resolved[key] = resolve(point, place)
            except InputError as error:
                raise blame_override(error, place, overrides) from error
        return self._resolved[key]

    def point(self, cell: Cell, seed: int) -> Table:
        """Return the spec of a cell's run, as the content of a spec file."""
        s = self.settings
        dataset = dict(s["datasets"][cell.dataset])
        attacks_of_dataset = dataset.pop("attacks", {})
        aggregator = dict(s["aggregators"]["alone" if cell.filter == "none" else "filtered"][cell.aggregator])
        holds = aggregator.pop("holds", None)
        point: Table = {"federation": {"seed": seed}}
        for piece in (s["base"], dataset, s["filters"][cell.filter], aggregator):
            point = merged(point, piece)
        if cell.attack == "none":
            point.pop("threat", None)
        else:
            point = merged(point, {"threat": {"fraction": float(cell.malicious_ratio)}})
            for piece in (s["attacks"][cell.attack], attacks_of_dataset.get(cell.attack, {})):
                point = merged(point, piece)
        point = merged(point, cell.changes)
        if holds is not None:
            point["aggregator"]["num_malicious"] = _tolerated(point, holds)
        return point


def read_variant(name: str) -> Variant:
    """Return the variant with the given name."""
    check_choice("reproduce", "variant", name, VARIANTS)
    settings = tomllib.loads(spec_text(name))
    return Variant(name, settings.pop("first_round"), settings)


def runs(
    variant: Variant, cells: Iterable[Cell], seeds: Sequence[int], overrides: Sequence[str] = ()
) -> list[Experiment]:
    """Return the runs of some cells, seed by seed. A run that several cells need is in the list once."""
    by_id: dict[str, Experiment] = {}
    cells = list(cells)
    for seed in seeds:
        for cell in cells:
            run = variant.run(cell, seed, overrides)
            if run is not None:
                by_id.setdefault(run.id, run)
    return list(by_id.values())


def merged(tree: Table, more: Table) -> Table:
    """Merge two tables, and their inner tables. If a key has a value in both, the value in `more` counts."""
    both = dict(tree)
    for key, value in more.items():
        own = both.get(key)
        both[key] = merged(own, value) if isinstance(own, dict) and isinstance(value, dict) else value
    return both


def _tolerated(point: Table, holds: Table) -> int:
    """Return the number of malicious clients that the aggregator is told.

    This is the true number b, but at most the number that the aggregator can withstand. To withstand f malicious
    models, the aggregator needs at least `each` * f + `spare` models. `holds` has the numbers `each` and `spare`.
    `point` is the spec of the run.
    """
    m = point["federation"]["num_clients"]
    b = resolve_count(point.get("threat", {"fraction": 0.0})["fraction"], m)
    kept = m if point["filter"]["name"] == "keep-all" else m - b
    most: int = (kept - holds["spare"]) // holds["each"]
    return max(0, min(b, most))
