"""Measures the default filter, `Guard`, under many attacks, compared with plain averaging and with an oracle.

    python benchmarks/guard.py [--groups first-round examples third-round honest poisoned many small kinds
                                         few-classes convolutions mnist cifar10]
                               [--seeds 40 41 42] [--filters guard] [--rounds 50] [--device cuda] [--jobs 12]
                               [--examples 0 100] [--data-dir DIR] [--out guard.sqlite] [--csv results/guard.csv]
                               [--table-only] [--dry-run]

Runs that are already in the results file `--out` are not run again. Rows of the file `--csv` that are not measured
again stay.

Groups
------
first-round   the same 10, 20 or 40% of the clients attack from round 1 on; the server has no examples
examples      the same 20 to 80% of the clients attack from round 1 on; the server has 100 examples
third-round   different clients attack in each round from round 3 on, 20 to 80% of them; no examples
honest        no attack, in 64 settings: partitions, optimizers, epochs, numbers of clients, clients per round
poisoned      10 or 30% of the clients have flipped labels or a backdoor, from round 1 or 3 on; 0 or 100 examples
many          1,000 clients, 100 a round: sign-flip from round 1 on, also by attackers with new ids in each round
small         the dataset digits with 10, 20 and 30 clients, attacks from round 1 on; 0 or 100 examples
kinds         images, a table, text and points: no attack in 128 settings, and 20 or 60% attack from round 1 or 3 on
few-classes   points of 2 to 6 classes, many clients with one class: no attack in 128 settings, and sign-flip
convolutions  the dataset digits with a convolutional network: no attack in 36 settings, and attacks from round 1 on
mnist         MNIST: the same clients attack from round 1 on (0 or 100 examples), or different clients from round 3
cifar10       CIFAR-10, 50 clients, a convolutional network: no attack in 24 settings, and attacks as in mnist

In the groups small, kinds, few-classes, convolutions and cifar10, the server has 0 or 100 examples, even where
nobody attacks.

How it measures
---------------
- The accuracy is that of the last round. Precision, recall and the share of honest clients that were dropped are
  those of all rounds together, from the first round with an attack on. Without an attack they are those of all
  rounds.
- There are two references, called yardsticks. `keep-all` is plain FedAvg. `oracle` drops exactly the malicious
  clients.
- The result of the oracle does not depend on what malicious clients send. So for the oracle one attack is enough:
  `--attacks sign-flip --filters oracle --yardsticks`.
- Fashion-MNIST has 100 clients of different sizes (Dirichlet, alpha 0.5), one epoch of Adam with the learning rate
  0.001, and the model mlp4.
- The constants of the filter were chosen on seeds below 10. Seeds from 40 on were not used for this.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import product
from pathlib import Path
from statistics import fmean

from flanders.checks import InputError
from flanders.experiments.execution import OptionChanges, Workforce, run_with_output_to_stderr
from flanders.experiments.experiment import Experiment
from flanders.experiments.spec import resolve
from flanders.report.text import print_table
from flanders.results.confusion import Confusion
from flanders.results.schema import reading
from flanders.results.summary import COUNTS
from flanders.results.tree import Table

PULLS = tuple({"name": "own-pull", "strength": s} for s in (0.3, 0.6, 1.0))
CLONES = tuple({"name": "noisy-clones", "noise": noise} for noise in (0.1, 0.3, 1.0))
ATTACKS: tuple[Table, ...] = (
    *(
        {"name": name}
        for name in ("gauss", "sign-flip", "lie", "ipm", "opt", "agr-min-max", "agr-min-sum", "static")
    ),
    *CLONES,
    *PULLS,
    *({"name": "own-pull", "strength": 0.6, "where": where} for where in ("last-layer", "but-last-layer")),
    *({"name": name} for name in ("mimic", "kept-signature", "slow-drift", "opt-trmean", "lie-reference")),
    *({"name": name} for name in ("agr-min-max-reference", "agr-tailored", "mar", "budget", "on-off")),
    *({"name": name} for name in ("below-the-split", "growing-camp")),
)
POISONS: tuple[Table, ...] = (
    {"name": "label-flip"},
    {"name": "backdoor", "boost": 1.0},
    {"name": "backdoor"},
    {"name": "dba", "boost": 1.0},
)
FASHION: Table = {
    "data": {"dataset": "fashion-mnist", "partition": {"name": "dirichlet", "alpha": 0.5}},
    "model": {"name": "mlp4"},
    "training": {"optimizer": "adam", "learning_rate": 1e-3},
    "federation": {"num_clients": 100},
}
DIGITS: Table = {
    "data": {"dataset": "digits", "partition": {"name": "dirichlet", "alpha": 0.5}},
    "model": {"name": "mlp2"},
    "training": {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 2},
}
YARDSTICKS = ("keep-all", "oracle")
AGGREGATORS = ("clipping-and-noise", "flame", "fltrust", "foolsgold", "median", "multi-krum", "zeno++")
"""The defences that can be given to `--filters` though they are aggregators. They run without a filter."""
MISSED = 0.02
"""An accuracy is printed in bold if it is more than this below the oracle's."""
MEASURED = ("accuracy", "precision", "recall", "honest_dropped", "attack_success")


@dataclass(frozen=True)
class Cell:
    """One setting of a group. Each filter has a run for each cell and seed."""

    group: str
    setting: str
    """The name of the dataset, or a description of the federation."""
    attack: str
    fraction: float
    """The share of malicious clients."""
    start: int
    """The first round with an attack."""
    rotating: bool
    """Whether different clients are malicious in each round."""
    examples: int
    """The number of labelled examples that the server has."""


@dataclass(frozen=True)
class Row(Cell):
    """One run of a cell. A value that was not measured is NaN."""

    filter: str
    seed: int
    accuracy: float = math.nan
    precision: float = math.nan
    recall: float = math.nan
    honest_dropped: float = math.nan
    attack_success: float = math.nan

    @property
    def cell(self) -> Cell:
        """The cell of the run."""
        return Cell(*astuple(self)[: len(fields(Cell))])

    @property
    def key(self) -> tuple[object, ...]:
        """The values that identify the run."""
        return self.cell, self.filter, self.seed


def row_of(cell: Cell, filter_: str, seed: int) -> Row:
    """Return the row of a run that is not measured yet."""
    what = (cell.group, cell.setting, cell.attack, cell.fraction, cell.start, cell.rotating, cell.examples)
    return Row(*what, filter_, seed)


def attacked(group: str, setting: str, base: Table, threat: Table, examples: int) -> tuple[Cell, Table]:
    """Return a cell, and its spec without filter, seed and rounds."""
    chosen = threat.get("attack") or threat.get("data_poison") or {"name": "none"}
    details = ", ".join(f"{key} {value}" for key, value in chosen.items() if key != "name")
    name = f"{chosen['name']} ({details})" if details else str(chosen["name"])
    start, rotating = int(threat.get("start", 1)), bool(threat.get("rotating", False))
    cell = Cell(group, setting, name, float(threat.get("fraction", 0.0)), start, rotating, examples)
    return cell, {**base, "threat": threat, "server": {"examples": examples}}


def first_round() -> Iterator[tuple[Cell, Table]]:
    for attack, fraction in product(ATTACKS, (0.1, 0.2, 0.4)):
        threat: Table = {"attack": attack, "fraction": fraction, "start": 1, "rotating": False}
        yield attacked("first-round", "fashion-mnist", FASHION, threat, 0)


def with_examples() -> Iterator[tuple[Cell, Table]]:
    for attack, fraction in product(ATTACKS, (0.2, 0.4, 0.6, 0.8)):
        threat: Table = {"attack": attack, "fraction": fraction, "start": 1, "rotating": False}
        yield attacked("examples", "fashion-mnist", FASHION, threat, 100)


def third_round() -> Iterator[tuple[Cell, Table]]:
    for attack, fraction in product(ATTACKS, (0.2, 0.6, 0.8)):
        threat: Table = {"attack": attack, "fraction": fraction, "start": 3, "rotating": True}
        yield attacked("third-round", "fashion-mnist", FASHION, threat, 0)


def honest() -> Iterator[tuple[Cell, Table]]:
    partitions: dict[str, Table] = {
        "Dir(0.1)": {"name": "dirichlet", "alpha": 0.1},
        "Dir(0.3)": {"name": "dirichlet", "alpha": 0.3},
        "Dir-equal(0.5)": {"name": "dirichlet-equal", "alpha": 0.5},
        "iid": {"name": "iid"},
    }
    axes = product(partitions.items(), ("adam", "sgd"), (1, 3), (37, 100), (1.0, 0.2))
    for (name, partition), optimizer, epochs, clients, share in axes:
        base: Table = {
            "data": {"dataset": "fashion-mnist", "partition": partition},
            "model": {"name": "mlp4"},
            "training": {"optimizer": optimizer, "learning_rate": 1e-2, "epochs": epochs},
            "federation": {"num_clients": clients, "clients_per_round": share},
        }
        setting = f"{name}, {optimizer}, {epochs} epochs, {clients} clients, {share:.0%} a round"
        yield attacked("honest", setting, base, {}, 0)


def poisoned() -> Iterator[tuple[Cell, Table]]:
    for poison, fraction, examples, start in product(POISONS, (0.1, 0.3), (0, 100), (1, 3)):
        threat: Table = {"data_poison": poison, "fraction": fraction, "start": start, "rotating": False}
        yield attacked("poisoned", "fashion-mnist", FASHION, threat, examples)


def many() -> Iterator[tuple[Cell, Table]]:
    base: Table = {**FASHION, "federation": {"num_clients": 1000, "clients_per_round": 0.1}}
    for setting, sybils in (("1000 clients, 100 a round", False), ("the same, new ids in each round", True)):
        for fraction, examples in product((0.2, 0.6), (0, 100)):
            attack: Table = {"attack": {"name": "sign-flip"}, "sybils": sybils}
            threat: Table = {**attack, "fraction": fraction, "start": 1, "rotating": False}
            yield attacked("many", f"fashion-mnist, {setting}", base, threat, examples)


def small() -> Iterator[tuple[Cell, Table]]:
    attacks = ({"name": "sign-flip"}, *PULLS[1:2], {"name": "ipm"}, {"name": "lie"})
    for clients in (10, 20, 30):
        base = {**DIGITS, "federation": {"num_clients": clients}}
        for examples in (0, 100):
            yield attacked("small", f"digits, {clients} clients", base, {}, examples)
        for attack, fraction, examples in product(attacks, (0.2, 0.4, 0.6), (0, 100)):
            threat: Table = {"attack": attack, "fraction": fraction, "start": 1, "rotating": False}
            yield attacked("small", f"digits, {clients} clients", base, threat, examples)


KINDS: dict[str, Table] = {
    "digits": {"name": "digits"},
    "breast-cancer": {"name": "breast-cancer"},
    "synthetic": {"name": "synthetic", "num_samples": 4000},
    "characters": {"name": "characters", "num_samples": 4000},
}
PARTITIONS: dict[str, Table] = {
    "Dir(0.1)": {"name": "dirichlet", "alpha": 0.1},
    "Dir(0.5)": {"name": "dirichlet", "alpha": 0.5},
    "two shards": {"name": "shards", "shards_per_client": 2},
    "iid": {"name": "iid"},
}


def without_attack(
    group: str, datasets: dict[str, Table], partitions: dict[str, Table]
) -> Iterator[tuple[Cell, Table]]:
    models, optimizers = ("mlp2", "logistic"), ("adam", "sgd")
    axes = product(datasets.items(), partitions.items(), models, optimizers, (12, 40), (0, 100))
    for (name, dataset), (how, partition), model, optimizer, clients, examples in axes:
        base: Table = {
            "data": {"dataset": dataset, "partition": partition},
            "model": {"name": model},
            "training": {"optimizer": optimizer, "learning_rate": 0.02, "epochs": 2},
            "federation": {"num_clients": clients},
        }
        setting = f"{name}, {how}, {model}, {optimizer}, {clients} clients"
        yield attacked(group, setting, base, {}, examples)


def kinds() -> Iterator[tuple[Cell, Table]]:
    yield from without_attack("kinds", KINDS, PARTITIONS)
    names = ("gauss", "sign-flip", "lie", "ipm", "agr-min-max", "mimic", "delta-free-rider")
    attacks = (*({"name": name} for name in names), CLONES[0], CLONES[-1], PULLS[1])
    axes = product(KINDS.items(), ("Dir(0.5)", "iid"), attacks, (0.2, 0.6), (1, 3), (0, 100))
    for (name, dataset), how, attack, fraction, start, examples in axes:
        base: Table = {
            "data": {"dataset": dataset, "partition": PARTITIONS[how]},
            "model": {"name": "mlp2"},
            "training": {"optimizer": "sgd", "learning_rate": 0.1, "epochs": 2},
            "federation": {"num_clients": 40},
        }
        threat: Table = {"attack": attack, "fraction": fraction, "start": start, "rotating": False}
        yield attacked("kinds", f"{name}, {how}", base, threat, examples)


def few_classes() -> Iterator[tuple[Cell, Table]]:
    datasets: dict[str, Table] = {
        f"{count} classes": {"name": "synthetic", "num_samples": 4000, "num_classes": count}
        for count in (2, 3, 4, 6)
    }
    partitions = {key: PARTITIONS[key] for key in ("Dir(0.1)", "Dir(0.5)", "two shards")}
    one_shard: dict[str, Table] = {"one shard": {"name": "shards", "shards_per_client": 1}}
    yield from without_attack("few-classes", datasets, {**partitions, **one_shard})
    uneven = {"Dir(0.1)": PARTITIONS["Dir(0.1)"], **one_shard}
    axes = product(datasets.items(), uneven.items(), (0.2, 0.4), (0, 100))
    for (name, dataset), (how, partition), fraction, examples in axes:
        base: Table = {
            "data": {"dataset": dataset, "partition": partition},
            "model": {"name": "mlp2"},
            "training": {"optimizer": "sgd", "learning_rate": 0.02, "epochs": 2},
            "federation": {"num_clients": 40},
        }
        threat: Table = {"attack": {"name": "sign-flip"}, "fraction": fraction, "start": 1, "rotating": False}
        yield attacked("few-classes", f"{name}, {how}, mlp2, sgd, 40 clients", base, threat, examples)


def convolutions() -> Iterator[tuple[Cell, Table]]:
    trainings: dict[str, Table] = {
        "adam": {"optimizer": "adam", "learning_rate": 0.003, "epochs": 2},
        "sgd": {"optimizer": "sgd", "learning_rate": 0.05, "epochs": 2},
        "slow sgd": {"optimizer": "sgd", "learning_rate": 0.003, "epochs": 2},
    }
    base: Table = {"model": {"name": "small-cnn"}}
    axes = product(PARTITIONS.items(), trainings.items(), (10, 24, 40), (0, 100))
    for (how, partition), (name, training), clients, examples in axes:
        setting = f"digits, small-cnn, {how}, {name}, {clients} clients"
        own: Table = {"data": {"dataset": "digits", "partition": partition}, "training": training}
        honest_: Table = {**base, **own, "federation": {"num_clients": clients}}
        yield attacked("convolutions", setting, honest_, {}, examples)
    attacks = (*({"name": name} for name in ("gauss", "sign-flip", "ipm", "lie")), PULLS[1])
    shares = ((0.2, 0), (0.4, 0), (0.2, 100), (0.4, 100), (0.6, 100))
    for clients, attack, (fraction, examples) in product((10, 20, 40), attacks, shares):
        own = {"data": DIGITS["data"], "training": trainings["sgd"], "federation": {"num_clients": clients}}
        threat: Table = {"attack": attack, "fraction": fraction, "start": 1, "rotating": False}
        setting = f"digits, small-cnn, Dir(0.5), sgd, {clients} clients"
        yield attacked("convolutions", setting, {**base, **own}, threat, examples)


def everything(group: str, base: Table) -> Iterator[tuple[Cell, Table]]:
    """Yield the cells of the groups first-round, examples and third-round, on another dataset."""
    axes = [(fraction, 1, False, 0) for fraction in (0.1, 0.2, 0.4)]
    axes += [(fraction, 1, False, 100) for fraction in (0.2, 0.4, 0.6, 0.8)]
    axes += [(fraction, 3, True, 0) for fraction in (0.2, 0.6, 0.8)]
    for attack, (fraction, start, rotating, examples) in product(ATTACKS, axes):
        threat: Table = {"attack": attack, "fraction": fraction, "start": start, "rotating": rotating}
        yield attacked(group, group, base, threat, examples)


def mnist() -> Iterator[tuple[Cell, Table]]:
    data = {**FASHION["data"], "dataset": "mnist"}
    yield from everything("mnist", {**FASHION, "data": data, "model": {"name": "mlp2"}})


def cifar10() -> Iterator[tuple[Cell, Table]]:
    trainings: dict[str, Table] = {
        "sgd": {"optimizer": "sgd", "learning_rate": 1e-2, "momentum": 0.9},
        "adam": {"optimizer": "adam", "learning_rate": 1e-3},
    }
    base: Table = {"model": {"name": "cnn6"}}
    partitions = {key: PARTITIONS[key] for key in ("Dir(0.1)", "Dir(0.5)", "iid")}
    axes = product(partitions.items(), trainings.items(), (20, 50), (0, 100))
    for (how, partition), (name, training), clients, examples in axes:
        own: Table = {"data": {"dataset": "cifar10", "partition": partition}, "training": training}
        honest: Table = {**base, **own, "federation": {"num_clients": clients}}
        yield attacked("cifar10", f"cifar10, {how}, {name}, {clients} clients", honest, {}, examples)
    own = {"data": {"dataset": "cifar10", "partition": PARTITIONS["Dir(0.5)"]}, "training": trainings["sgd"]}
    yield from everything("cifar10", {**base, **own, "federation": {"num_clients": 50}})


GROUPS = {
    "first-round": first_round,
    "examples": with_examples,
    "third-round": third_round,
    "honest": honest,
    "poisoned": poisoned,
    "many": many,
    "small": small,
    "kinds": kinds,
    "few-classes": few_classes,
    "convolutions": convolutions,
    "mnist": mnist,
    "cifar10": cifar10,
}


def runs_of(
    groups: Iterable[str],
    filters: Sequence[str],
    seeds: Sequence[int],
    rounds: int,
    yardsticks: Sequence[str] = YARDSTICKS,
    attacks: Sequence[str] = (),
    settings: Sequence[str] = (),
    examples: Sequence[int] = (),
) -> dict[str, tuple[Experiment, Row]]:
    """Return the runs by their ids. Each run comes with its row, in which nothing is measured yet."""
    found = {}
    for group in groups:
        for cell, spec in GROUPS[group]():
            if attacks and cell.attack not in attacks:
                continue
            if examples and cell.examples not in examples:
                continue
            if settings and not any(text in cell.setting for text in settings):
                continue
            names = [name for name in (*filters, *yardsticks) if cell.fraction or name != "oracle"]
            for name, seed in product(dict.fromkeys(names), seeds):
                run = experiment(spec, name, seed, rounds)
                found[run.id] = run, row_of(cell, name, seed)
    return found


def experiment(spec: Table, filter_: str, seed: int, rounds: int) -> Experiment:
    """Return the run of a spec with a filter and a seed."""
    federation = {**spec["federation"], "seed": seed, "rounds": rounds}
    defence: Table = {"filter": {"name": filter_}}
    if filter_ in AGGREGATORS:
        defence = {"filter": {"name": "keep-all"}, "aggregator": {"name": filter_}}
    return resolve({**spec, "federation": federation, **defence})


def measured(results: Path, asked: dict[str, tuple[Experiment, Row]]) -> list[Row]:
    """Return the rows of the finished runs, with the measured values."""
    rows = []
    with reading(results) as connection:
        done = [id_ for (id_,) in connection.execute("SELECT id FROM run WHERE status = 'done'") if id_ in asked]
        for id_ in done:
            _, row = asked[id_]
            counts = connection.execute(
                f"SELECT {COUNTS} FROM client WHERE run = ? AND round >= ?", (id_, row.start)
            ).fetchone()
            clients = Confusion(*map(int, counts))
            accuracy, success = connection.execute(
                "SELECT accuracy, attack_success FROM round WHERE run = ? ORDER BY number DESC LIMIT 1", (id_,)
            ).fetchone()
            rows.append(
                replace(
                    row,
                    accuracy=accuracy,
                    precision=clients.precision,
                    recall=clients.recall,
                    honest_dropped=clients.false_positive_rate,
                    attack_success=math.nan if success is None else success,
                )
            )
    return rows


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file. Without a file, return an empty list."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        names = tuple(field.name for field in fields(Row))
        if tuple(rows.fieldnames or ()) != names:
            raise InputError(f"{path} was not written by this benchmark. Name another file with --csv.")
        return [typed(row) for row in rows]


def typed(row: dict[str, str]) -> Row:
    """Return a line of the CSV file as a row."""
    return Row(
        row["group"],
        row["setting"],
        row["attack"],
        float(row["fraction"]),
        int(row["start"]),
        row["rotating"] == "True",
        int(row["examples"]),
        row["filter"],
        int(row["seed"]),
        *(float(row[name]) for name in MEASURED),
    )


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write the sorted rows as a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in sorted(rows, key=lambda row: repr(row.key)):
            numbers = [f"{value:.4f}" for value in astuple(row)[9:]]
            writer.writerow([*astuple(row)[:9], *numbers])


def show(rows: Sequence[Row], filters: Sequence[str]) -> None:
    """Print a table for each group, with the filter's precision, recall and accuracy, and all accuracies."""
    names = dict.fromkeys([*filters, *YARDSTICKS])
    for group in dict.fromkeys(row.group for row in rows):
        cells: dict[Cell, dict[str, list[Row]]] = {}
        for row in rows:
            if row.group == group:
                cells.setdefault(row.cell, {}).setdefault(row.filter, []).append(row)
        lines = []
        for cell, found in cells.items():
            accuracies = [mean([r.accuracy for r in found.get(name, [])]) for name in names]
            own = found.get(filters[0], [])
            detection = [mean([getattr(r, key) for r in own]) for key in ("precision", "recall", "honest_dropped")]
            what = [cell.setting, cell.attack, f"{cell.fraction:.0%}", str(cell.examples)]
            lines.append([*what, *detection, *accuracies, str(len(own))])
        header = [
            "setting",
            "attack",
            "share",
            "examples",
            "precision",
            "recall",
            "honest dropped",
            *names,
            "seeds",
        ]
        print_table(lines, header, title=group)


def print_markdown(rows: Sequence[Row], filter_: str) -> None:
    """Print the tables of docs/detection.md, with a row for each attack and columns for each share of attackers.

    The filter and the oracle have the same seeds. Plain averaging may have other seeds.
    """
    for group in dict.fromkeys(
        row.group for row in rows if row.group in ("first-round", "examples", "third-round")
    ):
        own = [row for row in rows if row.group == group]
        shares = sorted({row.fraction for row in own if row.filter == filter_})
        print(f"\n### {group}\n")
        print("| attack | " + " | ".join(f"{share:.0%} | accuracy" for share in shares) + " |")
        print("|---" * (1 + 2 * len(shares)) + "|")
        for attack in sorted({row.attack for row in own if row.filter == filter_}):
            cells = [markdown_cell(own, filter_, attack, share) for share in shares]
            print(f"| {attack} | " + " | ".join(cells) + " |")


def markdown_cell(rows: Sequence[Row], filter_: str, attack: str, share: float) -> str:
    """Return precision and recall of a filter, and the accuracies of filter, oracle and plain averaging."""
    here = [row for row in rows if row.fraction == share]
    runs = [row for row in here if row.filter == filter_ and row.attack == attack]
    if not runs:
        return "- | -"
    oracle = {row.seed: row.accuracy for row in here if row.filter == "oracle"}
    known = [oracle[row.seed] for row in runs if row.seed in oracle]
    plain = [row.accuracy for row in here if row.filter == "keep-all" and row.attack == attack]
    accuracy = mean([row.accuracy for row in runs])
    if known and fmean(row.accuracy for row in runs) < fmean(known) - MISSED:
        accuracy = f"**{accuracy}**"
    found = f"{mean([row.precision for row in runs], 2)} / {mean([row.recall for row in runs], 2)}"
    return f"{found} | {accuracy}, {mean(known)}, {mean(plain)}"


def mean(values: Sequence[float], digits: int = 3) -> str:
    """Return the mean of the numbers that are not NaN, as text."""
    known = [value for value in values if value == value]
    return f"{fmean(known):.{digits}f}" if known else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, write the rows, print them, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS), metavar="GROUP")
    parser.add_argument("--filters", nargs="+", default=["guard"], metavar="NAME")
    parser.add_argument("--yardsticks", nargs="*", choices=YARDSTICKS, default=list(YARDSTICKS), metavar="NAME")
    parser.add_argument(
        "--attacks", nargs="+", default=(), metavar="ATTACK", help="only these, as the table names them"
    )
    parser.add_argument(
        "--settings", nargs="+", default=(), metavar="TEXT", help="only settings whose name has one of these texts"
    )
    parser.add_argument(
        "--examples", nargs="+", type=int, default=(), metavar="COUNT", help="only cells with so many examples"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[40, 41, 42])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("guard.sqlite"))
    parser.add_argument("--csv", type=Path, default=Path("results") / "guard.csv")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/detection.md")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    try:
        asked = runs_of(
            options.groups, options.filters, options.seeds, options.rounds, options.yardsticks, options.attacks,
            options.settings, options.examples,
        )  # fmt: skip
        if options.dry_run:
            print(f"{len(asked)} runs")
            return 0
        code, found = 0, list[Row]()
        if not options.table_only:
            changes: OptionChanges = {"device": options.device}
            if options.data_dir is not None:
                changes["data_dir"] = options.data_dir.absolute()
            code = run_with_output_to_stderr(
                options.out, [run for run, _ in asked.values()], changes, Workforce(options.jobs)
            )
            found = measured(options.out, asked)
        rows = {row.key: row for row in [*read_rows(options.csv), *found]}
        if found:
            write_rows(options.csv, rows.values())
        shown = [row for row in rows.values() if row.group in options.groups]
        if options.markdown:
            print_markdown(shown, options.filters[0])
        else:
            show(shown, options.filters)
        return code
    except InputError as error:
        print(f"guard: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
