"""The work of the command `flanders reproduce`: it compares tables of the FLANDERS paper with our values.

A cell is one number of a table. Each cell needs a run for each seed. There are two variants of the runs. The
variant "reference" has the settings of the code that was published with the paper. The variant "textbook" has the
settings that the text of the paper describes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from flanders.checks import InputError, did_you_mean
from flanders.experiments.experiment import Experiment
from flanders.files import check_target, write_atomically, writing
from flanders.paper.comparison import Compared, compare_cells, verdicts_on
from flanders.paper.measures import read_curves, read_measures
from flanders.paper.rendering import as_csv, read_csv, render, verdict_text
from flanders.paper.tables import KEYS, TABLES, Cell, TableSpec, read_tables, table_names
from flanders.paper.variants import Variant, read_variant, runs
from flanders.results.labels import labels

OVER_TIME = "fig:accuracy-over-time"
"""The label of the figure whose curves are read from our runs."""
HARMLESS = ("data.dataset.verify=", "run.")
"""The beginnings of overrides that do not change which run is meant: whether the files of a dataset are checked,
and the options of a run."""


@dataclass(frozen=True)
class Curve:
    """The accuracy of a cell in each round."""

    cell: Cell
    rounds: tuple[tuple[float, ...], ...]
    """For each round, the accuracy of each seed."""


@dataclass(frozen=True)
class Reproduction:
    """What the user wants to reproduce: some tables of the paper, in one variant, for some seeds."""

    variant: Variant
    tables: tuple[TableSpec, ...]
    seeds: tuple[int, ...]
    overrides: tuple[str, ...] = ()
    """Changes to the specs of all runs, each of the form `key=value`."""

    @classmethod
    def of(
        cls,
        names: str,
        variant: str,
        seeds: int,
        where: Mapping[str, Sequence[str]],
        overrides: Sequence[str] = (),
    ) -> Reproduction:
        """Return the reproduction of the tables with the given names, with the seeds 0 to `seeds - 1`.

        `where` maps some of `KEYS` to the values that are wanted. Cells with other values are left out.
        """
        if seeds < 1:
            raise InputError(f"--seeds must be at least 1. Got {seeds} instead.")
        tables = [table for table in read_tables(table_names(names)) if variant in table.variants]
        if not tables:
            raise InputError(f"There is no table {names!r} in the {variant} variant. Choose the other variant.")
        for key, values in where.items():
            known = {getattr(cell, key) for table in tables for cell in table.cells}
            for value in values:
                if value not in known:
                    raise InputError(
                        f"None of these tables has the {key.replace('_', ' ')} {value!r}."
                        f"{did_you_mean(value, known)} Known: {', '.join(sorted(known))}."
                    )
        chosen = [
            replace(table, cells=tuple(c for c in table.cells if all(getattr(c, k) in v for k, v in where.items())))
            for table in tables
        ]
        if not any(table.cells for table in chosen):
            raise InputError("No cell has all of the values that --where asks for. Leave one of them out.")
        return cls(
            read_variant(variant),
            tuple(table for table in chosen if table.cells),
            tuple(range(seeds)),
            tuple(overrides),
        )

    @property
    def changes(self) -> list[str]:
        """The overrides that change the results of the runs."""
        return [text for text in self.overrides if not text.startswith(HARMLESS)]

    @property
    def words(self) -> str:
        """A description of the runs, e.g. `reference variant with federation.rounds=4`."""
        return f"{self.variant.name} variant" + (f" with {', '.join(self.changes)}" if self.changes else "")

    def runs(self) -> list[Experiment]:
        """Return the runs of all cells, seed by seed. A run that several cells need is in the list once."""
        cells = [cell for table in self.tables for cell in table.cells]
        return runs(self.variant, cells, self.seeds, self.overrides)

    def compare(self, results: Path) -> list[tuple[TableSpec, list[Compared]]]:
        """Return every table with our values and the paper's values. `results` is the file with our runs."""
        measures = read_measures(results, self.variant.first_round)
        return [
            (table, compare_cells(self.variant, table.cells, measures, self.seeds, self.overrides))
            for table in self.tables
        ]

    def curves(self, results: Path) -> list[Curve]:
        """Return the curves of the figure "accuracy over time". A cell without a finished run has no curve."""
        figures = [table for table in self.tables if table.label == OVER_TIME]
        cells = [cell for figure in figures for cell in figure.cells if cell.metric == "accuracy"]
        ids = {
            cell: [run.id for s in self.seeds if (run := self.variant.run(cell, s, self.overrides))]
            for cell in cells
        }
        read = read_curves(results, [id_ for ids_of_cell in ids.values() for id_ in ids_of_cell])
        done = {cell: [read[id_] for id_ in ids_of_cell if id_ in read] for cell, ids_of_cell in ids.items()}
        return [Curve(cell, tuple(zip(*by_seed, strict=True))) for cell, by_seed in done.items() if by_seed]


def parse_where(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the wanted values by key. `texts` are the arguments of `--where`, such as `key=value,value`.

    Examples
    --------
    >>> parse_where(["aggregator=fedavg,multikrum", "attack=lie"])
    {'aggregator': ['fedavg', 'multikrum'], 'attack': ['lie']}
    """
    where: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or key not in KEYS:
            raise InputError(
                f"--where needs key=value,value with a key of {', '.join(KEYS)}. Got {text!r}"
                + (", which has no =value." if key in KEYS else f".{did_you_mean(key, KEYS)}")
            )
        where.setdefault(key, []).extend(value for value in values.split(",") if value)
    return where


def write_tables(folder: Path, asked: Reproduction, results: Path) -> list[tuple[TableSpec, list[Compared]]]:
    """Write every table as Markdown and LaTeX, all cells as one CSV file, and a page with the verdict.

    Return the tables. If the folder has a CSV file already, its values stay. A value is replaced only if `results`
    has a value for the same cell. So a folder can be filled in parts, from several results files. Results with
    overrides need a folder of their own.
    """
    variant, new, description = asked.variant.name, asked.compare(results), asked.words
    earlier = check_tables(folder, asked, [c.cell for _, cells in new for c in cells if c.seeds])
    compared = with_earlier(new, earlier, variant)
    everything = [c for _, cells in compared for c in cells]
    texts = {
        f"{variant}.csv": as_csv(everything),
        f"{variant}-verdict.md": verdict_text(verdicts_on(everything), description),
    }
    for table, cells in compared:
        texts[f"{variant}-{table.stem}.md"] = render(table, cells, "markdown", description)
        texts[f"{variant}-{table.stem}.tex"] = render(table, cells, "latex", description)
    if curves := asked.curves(results):
        texts[f"{variant}-accuracy-over-time.csv"] = _curves_csv(curves)
    with writing(folder):
        for name, text in texts.items():
            check_target(folder / name)
            write_atomically(folder / name, text)
    return compared


def check_tables(folder: Path, asked: Reproduction, cells: Collection[Cell] | None = None) -> dict[Cell, Compared]:
    """Return the cells that are in the tables of a folder already and stay there. Make the folder if it is missing.

    With overrides that change the results, no earlier cell stays. Then cells that are not among `cells` would be
    lost. If the folder has results of such cells, raise an `InputError`. By default, `cells` are all requested
    cells.
    """
    file = folder / f"{asked.variant.name}.csv"
    with writing(folder):
        earlier = read_csv(file)
    if not asked.changes:
        return earlier
    new = set(cells if cells is not None else [c for table in asked.tables for c in table.cells])
    if lost := [cell for cell, c in earlier.items() if c.seeds and cell not in new]:
        raise InputError(
            f"{file} has results of {len(lost)} other cells. Since --set changes the runs, these cannot be "
            "in the same table. Give another folder to --tables."
        )
    return {}


def with_earlier(
    compared: Sequence[tuple[TableSpec, list[Compared]]], earlier: Mapping[Cell, Compared], variant: str
) -> list[tuple[TableSpec, list[Compared]]]:
    """Return all tables with the new and the earlier cells. A new value replaces an earlier value."""
    cells = dict(earlier)
    for c in (c for _, new in compared for c in new):
        if c.seeds or c.cell not in cells:
            cells[c.cell] = c
    tables = [table for table in read_tables(TABLES) if variant in table.variants]
    merged = [(table, [cells[cell] for cell in table.cells if cell in cells]) for table in tables]
    return [(table, shown) for table, shown in merged if shown]


def _curves_csv(curves: Sequence[Curve]) -> str:
    lines = ["dataset,attack,malicious_ratio,aggregator,filter,round,ours,low,high,seeds"]
    for curve in curves:
        setting = ",".join(curve.cell.key[:-1])
        for number, values in enumerate(curve.rounds, start=1):
            lines.append(
                f"{setting},{number},{fmean(values):.4f},{min(values):.4f},{max(values):.4f},{len(values)}"
            )
    return "\n".join(lines) + "\n"


def print_compared(compared: Sequence[tuple[TableSpec, list[Compared]]], variant: str, format_: str) -> None:
    """Print every table, and how many cells agree with the paper. `variant` is a description of the runs."""
    if format_ == "csv":
        print(as_csv([c for _, cells in compared for c in cells]), end="")
        return
    for table, cells in compared:
        print(render(table, cells, format_, variant))
    if format_ == "markdown":
        print(verdict_text(verdicts_on([c for _, cells in compared for c in cells]), variant))


def print_missing(asked: Reproduction, results: Path) -> None:
    """Print the runs that are not finished, in the order in which they would be run, and their number."""
    done = read_measures(results, asked.variant.first_round)
    every = asked.runs()
    missing = [run for run in every if run.id not in done]
    for run, name in zip(missing, labels([run.canonical for run in missing]), strict=True):
        print(f"{run.id}  {name}")
    print(f"{len(missing)} of {len(every)} runs are missing.")
