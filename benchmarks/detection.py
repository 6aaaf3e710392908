"""Measures how many malicious clients each filter finds under each attack, and the accuracy that results.

    python benchmarks/detection.py [--datasets fashion-mnist mnist] [--partitions dirichlet-0.5] [--attacks all]
                                   [--ratios 0 0.2 0.6 0.8] [--filters auto paper] [--rotation rotating,fixed]
                                   [--seeds 20 21 22] [--rounds 50] [--device cuda] [--jobs 12] [--data-dir DIR]
                                   [--out detection.sqlite] [--csv results/detection.csv] [--skip-known] [--json]
                                   [--dry-run] [--table-only]

The filter `Fingerprint()` is called `auto` here. It makes several promises, e.g. a recall of at least 0.95. The
function `judge` has them all. At the end, this script prints a verdict on each promise. Without options it runs
what the verdicts need. The word `all` in a list stands for all values. Runs that are already in the results file
`--out` are not run again.

How it measures
---------------
- Attacks begin in round 3, except `persistent`, which begins in round 1. Precision, recall, F1 and the
  false-positive rate are those of all rounds together, from the first round with an attack on. Without an attack
  they begin in round 3. The accuracy is that of the last round. In the rounds in which `on-off` pauses, no client
  is malicious.
- Two references are always run: `keep-all` is plain FedAvg, and `oracle` drops exactly the malicious clients. The
  result of the oracle does not depend on what malicious clients send. So most attacks share the oracle's runs.
  Without malicious clients, plain FedAvg is the oracle.
- All filters except `auto` are told the number of malicious clients, b. `paper` looks at all parameters.
  `paper-sampled` looks at 500 fixed parameters, as in the experiments of the FLANDERS paper. `reference` looks at
  500 parameters, as in the paper's code. `krum` keeps the clients that Multi-Krum selects.
- `blind-spot` poisons the parameters that the filter does not look at. If a filter looks at all parameters, the
  clients send honest models. It is then no merit to find them, and only the accuracy counts. `mar` replaces the
  parameters that the filter looks at.
- `persistent` is agr-min-max by the same clients from round 1 on. `sybils` is agr-min-max by clients that have new
  ids in each round.
- Data, models and training are those in the text of the FLANDERS paper, with 100 clients. The dataset digits, which
  is not in the paper, has 50 clients, the model mlp2 and a learning rate of 0.01.
- Promise 6 compares the time in the filter between runs of the same cell. Runs in parallel disturb each other, but
  they disturb both filters in the same way.

Tuned and held-out seeds
------------------------
The constants of the filter were chosen on seeds below 10. Which questions it asks was decided after runs with the
seeds 10 to 19. So rows of fashion-mnist, mnist and digits with seeds below 20 have the `split` "tuned". All other
rows are "held-out". Verdicts use only held-out rows.

Rows that are already in the file `--csv` stay, unless they are measured again. So one file can be filled in parts,
on several machines. The file does not contain the number of rounds. So for other numbers of rounds than 50, use
another file. `--skip-known` leaves out runs whose rows are in the file. Delete the file when the filter has
changed.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

from flanders.catalog import ATTACKS
from flanders.checks import InputError, did_you_mean
from flanders.experiments.execution import OptionChanges, Workforce, run_with_output_to_stderr
from flanders.experiments.experiment import Experiment
from flanders.experiments.spec import resolve
from flanders.paper.variants import merged, read_variant
from flanders.report.text import print_table
from flanders.results.confusion import Confusion
from flanders.results.schema import reading
from flanders.results.spec_keys import dataset_name
from flanders.results.summary import COUNTS
from flanders.results.tree import Table

ROUNDS, START = 50, 3
CSV = Path("results") / "detection.csv"
NONE, PLAIN, ORACLE = "none", "keep-all", "oracle"
DIGITS_TENSORS = [8192, 128, 1280, 10]

DATASETS = ("fashion-mnist", "mnist", "cifar10", "digits")
PARTITIONS: dict[str, Table] = {
    "dirichlet-0.1": {"name": "dirichlet", "alpha": 0.1},
    "dirichlet-0.5": {"name": "dirichlet", "alpha": 0.5},
    "dirichlet-10": {"name": "dirichlet", "alpha": 10.0},
    "dirichlet-equal-0.5": {"name": "dirichlet-equal", "alpha": 0.5},
    "iid": {"name": "iid"},
}
ATTACKS_BY_NAME: dict[str, Table] = {
    **{name: {"attack": {"name": name}} for name in ATTACKS},
    "mar-non-omniscient": {"attack": {"name": "mar", "omniscient": False}, "omniscient": False},
    "persistent": {"attack": {"name": "agr-min-max"}, "start": 1},
    "sybils": {"attack": {"name": "agr-min-max"}, "sybils": True},
}
"""The table `threat` of the spec for each attack, without the share of malicious clients."""
RATIOS = (0.0, 0.05, 0.2, 0.4, 0.6, 0.8)
FILTERS: dict[str, Table] = {
    "auto": {"name": "fingerprint"},
    "paper": {"name": "flanders", "keep": "m-b"},
    "paper-sampled": {"name": "flanders", "keep": "m-b", "look": {"name": "sample", "size": 500}},
    "reference": {"name": "flanders-reference", "keep": "m-b"},
    "fldetector": {"name": "fldetector", "keep": "m-b", "window": 20},
    "dnc": {"name": "dnc", "num_malicious": "b"},
    "krum": {"name": "krum", "num_malicious": "b"},
    "distance-to-global": {"name": "distance-to-global", "keep": "m-b"},
    "persistence": {"name": "persistence", "keep": "m-b"},
    PLAIN: {"name": "keep-all"},
    ORACLE: {"name": "oracle"},
}
ROTATIONS = ("rotating", "fixed")
TUNED_DATASETS, FIRST_HELD_OUT_SEED = ("fashion-mnist", "mnist", "digits"), 20
OWN_ORACLE = ("persistent", "on-off")
"""The attacks for which the oracle needs its own runs, since their clients are malicious in other rounds."""

# The attacks of three promises: easy to see, hard to see, and aimed at the parameters that a filter looks at.
LOUD = ("gauss", "sign-flip", "lie-reference", "opt-reference", "agr-min-max", "agr-min-max-reference")
QUIET = ("opt", "lie")
BLIND = ("mar", "blind-spot")
SHOWN_RATIOS, SHOWN_PARTITION, SHOWN_SEEDS = (0.2, 0.6, 0.8), "dirichlet-0.5", 3
ROUNDING = 1e-9


@dataclass(frozen=True)
class Cell:
    """A federation under an attack. Each filter has a run for each cell and seed."""

    dataset: str
    partition: str
    attack: str
    ratio: float
    """The share of malicious clients."""
    rotation: str
    """Whether different clients are malicious in each round ("rotating") or the same clients ("fixed")."""

    def __str__(self) -> str:
        attacked = "no attack" if self.ratio == 0 else f"{self.attack} r={self.ratio:g} {self.rotation}"
        return f"{self.dataset} {self.partition} {attacked}"


@dataclass(frozen=True)
class Row(Cell):
    """The result of a filter in a cell with one seed. A measure that is not defined or not known is None."""

    filter: str
    seed: int
    split: str
    precision: float | None
    recall: float | None
    f1: float | None
    fpr: float | None
    accuracy: float
    oracle_accuracy: float | None = None
    plain_accuracy: float | None = None

    @property
    def cell(self) -> Cell:
        """The federation and its attack."""
        return Cell(self.dataset, self.partition, self.attack, self.ratio, self.rotation)

    @property
    def key(self) -> tuple[str, str, str, float, str, str, int]:
        """The values that identify the row."""
        return (self.dataset, self.partition, self.attack, self.ratio, self.rotation, self.filter, self.seed)


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    clients: Confusion
    """How many malicious and honest clients were kept and dropped."""
    accuracy: float
    """The accuracy after the last round."""
    seconds: float
    """The time in the filter per round, the median over the rounds."""


@dataclass(frozen=True)
class Verdict:
    """Whether the filter keeps a promise."""

    promise: str
    status: str
    """`met`, `missed`, or `not shown` if no run misses the promise, but some runs are missing."""
    misses: tuple[str, ...] = ()
    """The cells that miss the promise."""
    absent: tuple[str, ...] = ()
    """The cells with too few seeds."""
    note: str = ""

    def __str__(self) -> str:
        parts = [f"{self.status.upper():9}  {self.promise}"]
        parts += [self.note] if self.note else []
        parts += [f"misses ({len(self.misses)}): " + "; ".join(self.misses)] if self.misses else []
        if self.absent:
            more = f"; and {len(self.absent) - 2} more" if len(self.absent) > 2 else ""
            parts.append(f"too few seeds ({len(self.absent)}): " + "; ".join(self.absent[:2]) + more)
        return " | ".join(parts)


Check = Callable[[list[Row]], str]
"""A function that gets the rows of a cell, one for each seed. It returns how the cell misses a promise, or ""."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, write the rows, print the table and the verdicts, and return the exit code."""
    options = parse(arguments)
    try:
        return carry_out_benchmark(options)
    except InputError as error:
        print(f"detection: {error}", file=sys.stderr)
        return 2


def carry_out_benchmark(options: argparse.Namespace) -> int:
    if options.rounds != ROUNDS and options.csv == CSV:
        raise InputError(f"{CSV} is for {ROUNDS} rounds. Name another file with --csv for {options.rounds}.")
    known = read_rows(options.csv)
    asked = [
        (cell, name, seed)
        for seed in options.seeds
        for cell in cells(options)
        for name in dict.fromkeys([PLAIN, ORACLE, *options.filters])
    ]
    if options.skip_known:
        there = {row.key for row in known}
        asked = [(c, name, seed) for c, name, seed in asked if (*astuple(c), name, seed) not in there]
    runs = {(c, name, seed): run_of(c, name, seed, options.rounds) for c, name, seed in asked}
    specs = list({run.id: run for run in runs.values()}.values())
    if options.dry_run:
        done = read_outcomes(options.out, specs)
        for dataset in options.datasets:
            of_it = [run for run in specs if dataset_name(run.canonical) == dataset]
            print(f"{dataset}: {len(of_it)} runs, {sum(run.id in done for run in of_it)} of them done")
        print(f"{len(specs)} runs for {len(asked)} rows")
        return 0
    code = 0
    if not options.table_only and specs:
        changes: OptionChanges = {"device": options.device}
        if options.data_dir is not None:
            changes["data_dir"] = options.data_dir
        code = run_with_output_to_stderr(options.out, specs, changes, Workforce(options.jobs))
    outcomes = read_outcomes(options.out, specs)
    found = [row_of(*key, outcomes[run.id]) for key, run in runs.items() if run.id in outcomes]
    rows = with_yardsticks({row.key: row for row in [*known, *found]}.values())
    if not rows:
        raise InputError(f"Neither {options.out} nor {options.csv} has any of these results. Run them first.")
    write_rows(options.csv, rows)
    seconds = {key: outcomes[run.id].seconds for key, run in runs.items() if run.id in outcomes}
    verdicts = judge(rows, seconds)
    if options.json:
        print(json.dumps({"rows": list(map(asdict, rows)), "verdicts": list(map(asdict, verdicts))}, indent=1))
        return code
    show_tables(rows)
    for name in options.filters:
        mine = [run for (_, of, _), run in runs.items() if of == name]
        if told := calibration(options.out, mine):
            print(f"\nProbabilities of {name}: {told}")
    print("\nVerdicts, from held-out rows only")
    for verdict in verdicts:
        print(verdict)
    return code


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Yield the cells of the options. Without malicious clients, a dataset and partition have a single cell."""
    for dataset in options.datasets:
        for partition in options.partitions:
            for ratio in options.ratios:
                if ratio == 0:
                    yield Cell(dataset, partition, NONE, 0.0, NONE)
                    continue
                for rotation in options.rotation:
                    for attack in options.attacks:
                        if attack != "persistent" or rotation == "fixed":
                            yield Cell(dataset, partition, attack, ratio, rotation)


def run_of(cell: Cell, filter_: str, seed: int, rounds: int) -> Experiment:
    """Return the run of a filter in a cell, with one seed."""
    if filter_ == ORACLE:
        if cell.ratio == 0:
            filter_ = PLAIN
        elif cell.attack not in OWN_ORACLE:
            cell = replace(cell, attack="sign-flip")
    paper = settings("textbook")
    point: Table = {"training": paper["base"]["training"], "federation": {"num_clients": 100}}
    if cell.dataset == "digits":
        own: Table = {"data": {"dataset": "digits"}, "training": {"learning_rate": 0.01}}
        own |= {"model": {"name": "mlp2"}, "federation": {"num_clients": 50}}
    else:
        own = paper["datasets"][cell.dataset]
    point = merged(point, own)
    point = merged(point, {"federation": {"rounds": rounds, "seed": seed}, "filter": FILTERS[filter_]})
    point = merged(point, {"data": {"partition": PARTITIONS[cell.partition]}})
    # A checkpoint takes as long as a round, and a run takes only seconds. So there are no checkpoints during a run.
    point["run"] = {"checkpoint_every": rounds}
    if cell.ratio > 0:
        threat = {"fraction": cell.ratio, "start": START, "rotating": cell.rotation == "rotating"}
        point["threat"] = merged(threat, ATTACKS_BY_NAME[cell.attack])
        if cell.attack == "opt-reference":
            point["threat"]["attack"] = {"name": cell.attack, "layer_sizes": tensors_of(cell.dataset)}
    return resolve(point, "detection")


@cache
def settings(variant: str) -> Table:
    """Return the settings of the paper's experiments in one variant."""
    return read_variant(variant).settings


def tensors_of(dataset: str) -> list[int]:
    """Return the number of parameters of each tensor of a dataset's model. The attack opt-reference needs them."""
    if dataset == "digits":
        return DIGITS_TENSORS
    sizes: list[int] = settings("reference")["datasets"][dataset]["attacks"]["opt"]["threat"]["attack"][
        "layer_sizes"
    ]
    return sizes


def read_outcomes(path: Path, specs: Iterable[Experiment]) -> dict[str, Outcome]:
    """Return the results of the finished runs, by their ids."""
    if not path.exists():
        return {}
    found = {}
    with reading(path) as connection:
        done = {id_ for (id_,) in connection.execute("SELECT id FROM run WHERE status = 'done'")}
        for spec in specs:
            if spec.id not in done:
                continue
            threat = spec.setting.threat
            first = threat.start if threat.exists else START
            counts = connection.execute(
                f"SELECT {COUNTS} FROM client WHERE run = ? AND round >= ?", (spec.id, first)
            ).fetchone()
            rounds = connection.execute(
                "SELECT accuracy, filter FROM round WHERE run = ? ORDER BY number", (spec.id,)
            ).fetchall()
            seconds = median(spent for _, spent in rounds[START - 1 :] or rounds)
            found[spec.id] = Outcome(Confusion(*map(int, counts)), rounds[-1][0], seconds)
    return found


def calibration(path: Path, specs: Iterable[Experiment]) -> str:
    """Return how good a filter's probabilities are: the Brier score, and the calibration error over ten bins."""
    if not path.exists():
        return ""
    bins, squares = [[0.0, 0.0, 0.0] for _ in range(10)], 0.0
    with reading(path) as connection:
        for spec in {spec.id: spec for spec in specs}.values():
            found = connection.execute(
                "SELECT min(9, CAST(10 * probability AS INTEGER)) AS bin, count(*), total(probability), "
                "total(malicious), total((probability - malicious) * (probability - malicious)) "
                "FROM client WHERE run = ? AND round >= ? AND probability IS NOT NULL GROUP BY bin",
                (spec.id, START),
            )
            for number, *sums, square in found:
                bins[number] = [old + new for old, new in zip(bins[number], sums, strict=True)]
                squares += square
    count = sum(n for n, _, _ in bins)
    if not count:
        return ""
    error = sum(abs(said - true) for _, said, true in bins) / count
    return f"Brier score {squares / count:.4f}, expected calibration error {error:.4f} ({count:,.0f} judgements)"


def row_of(cell: Cell, filter_: str, seed: int, got: Outcome) -> Row:
    """Return the row of a run. `with_yardsticks` adds the accuracies of the oracle and of plain FedAvg later."""
    tuned = cell.dataset in TUNED_DATASETS and seed < FIRST_HELD_OUT_SEED
    return Row(
        **asdict(cell),
        filter=filter_,
        seed=seed,
        split="tuned" if tuned else "held-out",
        precision=rounded(got.clients.precision),
        recall=rounded(got.clients.recall),
        f1=rounded(got.clients.f1),
        fpr=rounded(got.clients.false_positive_rate),
        accuracy=round(got.accuracy, 5),
    )


def rounded(share: float) -> float | None:
    """Return a share rounded to five digits, or None for NaN."""
    return None if math.isnan(share) else round(share, 5)


def with_yardsticks(rows: Iterable[Row]) -> list[Row]:
    """Return the sorted rows, each with the accuracy of the oracle and of plain FedAvg in its cell."""
    rows = sorted(rows, key=lambda row: row.key)
    accuracy = {(row.cell, row.filter, row.seed): row.accuracy for row in rows}
    return [
        replace(
            row,
            oracle_accuracy=accuracy.get((row.cell, ORACLE, row.seed)),
            plain_accuracy=accuracy.get((row.cell, PLAIN, row.seed)),
        )
        for row in rows
    ]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that `write_rows` wrote. Without a file, return an empty list."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != [field.name for field in fields(Row)]:
            raise InputError(f"{path} has other columns than this benchmark writes. Name another file with --csv.")
        return [Row(**{name: parsed(name, text) for name, text in line.items()}) for line in reader]


def parsed(name: str, text: str) -> Any:
    """Return a value of a column with the type of this column."""
    if name == "seed":
        return int(text)
    if name in ("dataset", "partition", "attack", "rotation", "filter", "split"):
        return text
    return float(text) if text else None


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows as a CSV file. None is written as an empty value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(astuple(row) for row in rows)


def show_tables(rows: Sequence[Row]) -> None:
    """Print a table for each federation, with means over the seeds, and the lowest and the highest value."""
    groups = dict.fromkeys((r.dataset, r.partition, r.rotation, r.split) for r in rows if r.rotation != NONE)
    for dataset, partition, rotation, split in groups:
        there = (dataset, partition, split)
        mine = [r for r in rows if (r.dataset, r.partition, r.split) == there and r.rotation in (rotation, NONE)]
        present = {r.filter for r in mine}
        others = [name for name in FILTERS if name in present and name != "auto"]
        lines = []
        for cell in dict.fromkeys(r.cell for r in mine):
            of = {name: [r for r in mine if r.cell == cell and r.filter == name] for name in present}
            auto = of.get("auto", [])
            lines.append(
                [cell.attack, f"{cell.ratio:g}", spread(r.precision for r in auto), spread(r.recall for r in auto)]
                + [spread(r.fpr for r in auto), spread(r.accuracy for r in auto)]
                + [f"{fmean(r.accuracy for r in of[name]):.3f}" if of[name] else "-" for name in others]
            )
        seeds = ", ".join(str(seed) for seed in sorted({r.seed for r in mine}))
        columns = ["attack", "r", "precision", "recall", "fpr", "accuracy", *others]
        title = (
            f"{dataset}, {partition}, {rotation} attackers, {split}: auto, and the others' accuracy (seeds {seeds})"
        )
        print_table(lines, columns, title)


def spread(values: Iterable[float | None]) -> str:
    """Return "mean (lowest-highest)" of the values that are not None."""
    found = [value for value in values if value is not None]
    return f"{fmean(found):.3f} ({min(found):.3f}-{max(found):.3f})" if found else "-"


def judge(rows: Sequence[Row], seconds: dict[tuple[Cell, str, int], float]) -> list[Verdict]:
    """Return the verdicts on the promises of `auto`. `seconds` has times in the filter by cell, filter and seed."""
    held_out = [row for row in rows if row.split == "held-out"]
    auto: dict[Cell, list[Row]] = {}
    for row in held_out:
        if row.filter == "auto":
            auto.setdefault(row.cell, []).append(row)
    verdicts = []
    for dataset, rotation in product(("fashion-mnist", "mnist"), ("rotating", "fixed")):
        first = (dataset, rotation) == ("fashion-mnist", "rotating")
        number, place = "" if first else "5/", f"{dataset}, {rotation}"
        loud, blind = attacked(dataset, rotation, LOUD), attacked(dataset, rotation, BLIND)
        quiet = [cell for cell in attacked(dataset, rotation, QUIET) if cell.ratio == 0.2]
        note = loss_of_sampled(held_out, blind)
        verdicts += [
            verdict_on(
                auto, f"{number}1 recall and precision at least 0.95 ({place}{on(loud)})", loud, check_found
            ),
            verdict_on(auto, f"{number}1 recall at least 0.9 ({place}{on(quiet)})", quiet, check_recall),
            verdict_on(
                auto, f"{number}4 within 0.02 of the oracle ({place}{on(blind)})", blind, check_near_oracle, note
            ),
        ]
        if rotation == "rotating":  # without an attack, both rotations are the same
            honest = [Cell(dataset, SHOWN_PARTITION, NONE, 0.0, NONE)]
            promise = f"{number}2 no attack: at most 2% dropped, accuracy within 0.005 of plain FedAvg ({dataset})"
            verdicts.append(verdict_on(auto, promise, honest, check_honest))
    every = f"{len(auto)} cells{on(auto)}"
    worth = f"3 within 0.02 of the oracle wherever that is 0.02 above plain FedAvg ({every})"
    verdicts += [
        verdict_on(auto, f"3 in no cell more than 0.01 below plain FedAvg ({every})", list(auto), check_not_worse),
        verdict_on(auto, worth, list(auto), check_worth_it),
        judge_time(seconds),
    ]
    return sorted(verdicts, key=lambda verdict: verdict.promise)


def on(cells: Iterable[Cell]) -> str:
    """Return in words which attacks and shares of malicious clients some cells have."""
    cells = [cell for cell in cells if cell.ratio > 0]
    attacks = ", ".join(dict.fromkeys(cell.attack for cell in cells))
    ratios = ", ".join(f"{ratio:g}" for ratio in sorted({cell.ratio for cell in cells}))
    return f"; {attacks}; r = {ratios}" if cells else ""


def attacked(dataset: str, rotation: str, attacks: Iterable[str]) -> list[Cell]:
    """Return the cells with the given attacks from which a promise is judged."""
    return [Cell(dataset, SHOWN_PARTITION, attack, r, rotation) for attack in attacks for r in SHOWN_RATIOS]


def verdict_on(
    auto: dict[Cell, list[Row]], promise: str, needed: Sequence[Cell], check: Check, note: str = ""
) -> Verdict:
    """Return the verdict on a promise from the rows of the `needed` cells.

    A cell misses the promise if `check` returns a problem. The promise is met if no cell misses it, and if all
    cells have at least `SHOWN_SEEDS` seeds.
    """
    misses, absent = [], []
    for cell in needed:
        found = [r for r in auto.get(cell, []) if r.oracle_accuracy is not None and r.plain_accuracy is not None]
        if len(found) < SHOWN_SEEDS:
            absent.append(f"{cell} ({len(found)} of {SHOWN_SEEDS} seeds)")
        if found and (problem := check(found)):
            misses.append(f"{cell}: {problem}")
    status = "missed" if misses else "met" if needed and not absent else "not shown"
    return Verdict(promise, status, tuple(misses), tuple(absent), note)


def check_found(rows: list[Row]) -> str:
    return ", ".join(filter(None, (too_low(rows, "recall", 0.95), too_low(rows, "precision", 0.95))))


def check_recall(rows: list[Row]) -> str:
    return too_low(rows, "recall", 0.9)


def check_honest(rows: list[Row]) -> str:
    dropped = mean_of(rows, "fpr")
    too_many = f"fpr {dropped:.4f}" if dropped > 0.02 + ROUNDING else ""
    return ", ".join(filter(None, (too_many, too_far(rows, "plain_accuracy", 0.005))))


def check_near_oracle(rows: list[Row]) -> str:
    return too_far(rows, "oracle_accuracy", 0.02)


def check_not_worse(rows: list[Row]) -> str:
    return too_far(rows, "plain_accuracy", 0.01)


def check_worth_it(rows: list[Row]) -> str:
    worth = mean_of(rows, "oracle_accuracy") - mean_of(rows, "plain_accuracy")
    return check_near_oracle(rows) if worth > 0.02 + ROUNDING else ""


def too_low(rows: list[Row], column: str, least: float) -> str:
    """Return a text if the mean of a column is too low, else an empty string."""
    mean = mean_of(rows, column)
    return f"{column} {mean:.3f}" if mean < least - ROUNDING else ""


def too_far(rows: list[Row], column: str, most: float) -> str:
    """Return a text if the accuracy is too far below another column, else an empty string."""
    loss = mean_of(rows, column) - mean_of(rows, "accuracy")
    return f"{loss:.4f} below the {column.removesuffix('_accuracy')} one" if loss > most + ROUNDING else ""


def mean_of(rows: Iterable[Row], column: str) -> float:
    """Return the mean of a column. None counts as 0, e.g. the precision of a filter that drops no client."""
    return fmean(getattr(row, column) or 0.0 for row in rows)


def loss_of_sampled(rows: Iterable[Row], blind: Sequence[Cell]) -> str:
    """Return in words how much accuracy the filters with a fixed sample of parameters lose against the oracle."""
    told = []
    for name, attack in product(("paper-sampled", "reference"), BLIND):
        mine = [r for r in rows if r.filter == name and r.attack == attack and r.cell in blind]
        losses = [r.oracle_accuracy - r.accuracy for r in mine if r.oracle_accuracy is not None]
        told += [f"{name} loses {min(losses):.2f} to {max(losses):.2f} to {attack}"] if losses else []
    return ", ".join(told)


def judge_time(seconds: dict[tuple[Cell, str, int], float]) -> Verdict:
    """Return the verdict on the time in the filter, compared with the filter `paper` in the same runs."""
    promise = "6 time in the filter at most twice the paper's (all parameters)"
    ratios: dict[str, list[float]] = {}
    for (cell, name, seed), spent in seconds.items():
        if name == "auto" and seconds.get((cell, "paper", seed)):
            ratios.setdefault(cell.dataset, []).append(spent / seconds[cell, "paper", seed])
    if "fashion-mnist" not in ratios:
        return Verdict(promise, "not shown", absent=("fashion-mnist: no cell with both in the results file",))
    medians = {dataset: median(found) for dataset, found in ratios.items()}
    misses = tuple(f"{dataset}: {ratio:.2f}" for dataset, ratio in medians.items() if ratio > 2)
    note = ", ".join(f"{dataset} {ratio:.2f} in {len(ratios[dataset])} runs" for dataset, ratio in medians.items())
    return Verdict(promise, "missed" if misses else "met", misses, note=note)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])

    def listed(name: str, known: Sequence[str], default: Sequence[str], text: str) -> None:
        known_text = f"{text} of {', '.join(known)}; or all (default: {' '.join(default)})"
        parser.add_argument(f"--{name}", nargs="+", default=list(default), metavar="NAME", help=known_text)

    listed("datasets", DATASETS, ("fashion-mnist", "mnist"), "some")
    listed("partitions", list(PARTITIONS), (SHOWN_PARTITION,), "some")
    listed("attacks", list(ATTACKS_BY_NAME), ("all",), "some")
    listed("ratios", [f"{ratio:g}" for ratio in RATIOS], ("0", "0.2", "0.6", "0.8"), "some")
    listed("filters", list(FILTERS), ("auto", "paper"), "some, beside keep-all and oracle,")
    listed("rotation", ROTATIONS, ROTATIONS, "some")
    parser.add_argument("--seeds", nargs="+", type=int, default=[20, 21, 22])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the runs")
    parser.add_argument("--data-dir", type=Path, help="where the datasets' files are")
    parser.add_argument("--out", type=Path, default=Path("detection.sqlite"), help="results file")
    parser.add_argument("--csv", type=Path, default=CSV, help="file of rows; new rows are merged into it")
    parser.add_argument("--skip-known", action="store_true", help="leave out runs whose rows --csv has already")
    parser.add_argument("--json", action="store_true", help="print rows and verdicts as JSON")
    parser.add_argument("--dry-run", action="store_true", help="count the runs")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    try:
        options.datasets = chosen("datasets", options.datasets, DATASETS)
        options.partitions = chosen("partitions", options.partitions, list(PARTITIONS))
        options.attacks = chosen("attacks", options.attacks, list(ATTACKS_BY_NAME))
        options.filters = chosen("filters", options.filters, list(FILTERS))
        options.rotation = chosen("rotation", options.rotation, ROTATIONS)
        options.ratios = [float(r) for r in chosen("ratios", options.ratios, [f"{r:g}" for r in RATIOS])]
    except InputError as error:
        parser.error(str(error))
    return options


def chosen(option: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return a list of names from the values of an option, which may contain commas. `all` stands for all names."""
    names = [name for text in asked for name in text.split(",") if name]
    if "all" in names:
        return list(known)
    for name in names:
        if name not in known:
            guess = did_you_mean(name, known)
            raise InputError(f"--{option} does not know {name!r}.{guess} Known: all, {', '.join(known)}.")
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    sys.exit(main())
